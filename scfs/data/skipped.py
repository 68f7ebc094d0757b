import os
from collections import Counter
from pathlib import Path

from rich.console import Console

from scfs.data.archives import archives_in
from scfs.data.decode import SUFFIXES


def skipped_by_suffix(source: str) -> Counter[str]:
    """How many files of a folder of photos are not read, by suffix, such as .heic; empty for any other source."""
    root = Path(source).expanduser()
    is_embedded = source.partition(":")[0] == "scenes"  # even next to a folder of that name
    if is_embedded or not root.is_dir() or archives_in(root):
        return Counter()
    return _count(root / "train" if (root / "train").is_dir() else root)


def show_skipped(source: str, console: Console) -> None:
    """Print how many files of a folder of photos, `train` and `val` included, are not read because of their suffix."""
    root = Path(source).expanduser()
    skipped = _count(root) if root.is_dir() and not archives_in(root) else Counter[str]()
    if skipped:
        listed = ", ".join(f"{count} {suffix}" for suffix, count in skipped.most_common())
        line = f"{skipped.total()} files skipped because of their suffix ({listed})"
        console.print(line, style="yellow", soft_wrap=True, highlight=False, markup=False)


def _count(root: Path) -> Counter[str]:
    seen, skipped = set[str](), Counter[str]()
    for folder, inner, names in os.walk(root, followlinks=True):
        seen.add(os.path.realpath(folder))
        inner[:] = [each for each in inner if each[0] != "." and str((Path(folder) / each).resolve()) not in seen]
        suffixes = (Path(name).suffix.lower() for name in names if name[0] != ".")
        skipped.update(suffix or "without a suffix" for suffix in suffixes if suffix not in SUFFIXES)
    return skipped
