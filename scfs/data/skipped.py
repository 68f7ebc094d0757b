from collections import Counter
from pathlib import Path

from rich.console import Console

from scfs.data.archives import archives_in
from scfs.data.folder_walk import other_suffixes
from scfs.data.splits import split_folders


def skipped_by_suffix(source: str, *, all_splits: bool = False) -> Counter[str]:
    """How many files of a folder of photos are not read, by suffix, such as .heic; empty for any other source.

    Counts the train images' folder or, with `all_splits`, everything.
    """
    root = Path(source).expanduser()
    is_embedded = source.partition(":")[0] == "scenes"  # even next to a folder of that name
    if is_embedded or not root.is_dir() or archives_in(root):
        return Counter()
    return other_suffixes(root if all_splits else split_folders(root).train)


def skipped_files(skipped: Counter[str]) -> str:
    """How many files were skipped, in words."""
    listed = ", ".join(f"{count} {suffix}" for suffix, count in skipped.most_common())
    files, their = ("file", "its") if skipped.total() == 1 else ("files", "their")
    return f"{skipped.total()} {files} skipped because of {their} suffix ({listed})"


def show_skipped(skipped: Counter[str], console: Console) -> None:
    """Print how many files were skipped, if any."""
    if skipped:
        console.print(skipped_files(skipped), style="yellow")
