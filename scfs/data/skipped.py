import os
from collections import Counter
from pathlib import Path

from scfs.data.archives import archives_in
from scfs.data.decode import SUFFIXES


def skipped_by_suffix(source: str) -> Counter[str]:
    """How many files of a folder of photos are not read, by suffix, such as .heic; empty for any other source."""
    root = Path(source).expanduser()
    if not root.is_dir() or archives_in(root):
        return Counter()
    root, seen, skipped = root / "train" if (root / "train").is_dir() else root, set[str](), Counter[str]()
    for folder, inner, names in os.walk(root, followlinks=True):
        seen.add(os.path.realpath(folder))
        inner[:] = [each for each in inner if each[0] != "." and str((Path(folder) / each).resolve()) not in seen]
        suffixes = (Path(name).suffix.lower() for name in names if name[0] != ".")
        skipped.update(suffix or "without a suffix" for suffix in suffixes if suffix not in SUFFIXES)
    return skipped
