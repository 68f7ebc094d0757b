from collections import Counter
from pathlib import Path

from rich.console import Console

from scfs.data import splits
from scfs.data.archives import archives_in
from scfs.data.counted import counted
from scfs.data.folder_walk import BROKEN_LINK, other_suffixes


def skipped_by_suffix(source: str, *, all_splits: bool = False) -> Counter[str]:
    """How many files of a folder of photos are not read, by suffix, such as .heic; empty for any other source.

    Broken links count too, as a kind of their own. Counts the train images' folder or, with `all_splits`, everything.
    """
    root = _folder_of_photos(source)
    if root is None:
        return Counter()
    return other_suffixes(root if all_splits else splits.split_folders(root).train)


def unused_folders(source: str) -> list[str]:
    """The folders of a folder of photos that are neither train nor val images; empty for any other source."""
    root = _folder_of_photos(source)
    return [] if root is None else splits.unused_folders(root)


def _folder_of_photos(source: str) -> Path | None:
    root = Path(source).expanduser()
    is_embedded = source.partition(":")[0] == "scenes"  # even next to a folder of that name
    return None if is_embedded or not root.is_dir() or archives_in(root) else root


def skipped_files(skipped: Counter[str]) -> str:
    """How many files were skipped, and why, in words."""
    by_suffix, broken = +skipped, skipped[BROKEN_LINK]
    del by_suffix[BROKEN_LINK]
    parts = []
    if by_suffix:
        listed = ", ".join(f"{count} {suffix}" for suffix, count in by_suffix.most_common())
        their = "its" if by_suffix.total() == 1 else "their"
        parts.append(f"{counted(by_suffix.total(), 'file')} skipped because of {their} suffix ({listed})")
    if broken:
        parts.append(f"{counted(broken, 'broken link')} skipped")
    return ", ".join(parts)


def show_skipped(skipped: Counter[str], console: Console) -> None:
    """Print how many files were skipped, if any."""
    if skipped:
        console.print(skipped_files(skipped), style="yellow")
