from collections import Counter
from pathlib import Path

from rich.console import Console

from scfs.data.archives import archives_in
from scfs.data.folder_walk import other_suffixes
from scfs.data.splits import split_folders


def skipped_by_suffix(source: str) -> Counter[str]:
    """How many files of a folder of photos are not read, by suffix, such as .heic; empty for any other source."""
    root = Path(source).expanduser()
    is_embedded = source.partition(":")[0] == "scenes"  # even next to a folder of that name
    if is_embedded or not root.is_dir() or archives_in(root):
        return Counter()
    return other_suffixes(split_folders(root).train)


def show_skipped(source: str, console: Console) -> None:
    """Print how many files of a folder of photos, `train` and `val` included, are not read because of their suffix."""
    root = Path(source).expanduser()
    skipped = other_suffixes(root) if root.is_dir() and not archives_in(root) else Counter[str]()
    if skipped:
        listed = ", ".join(f"{count} {suffix}" for suffix, count in skipped.most_common())
        line = f"{skipped.total()} files skipped because of their suffix ({listed})"
        console.print(line, style="yellow")
