import os
from collections import Counter
from pathlib import Path

from scfs.data.decode import SUFFIXES

NO_SUFFIX = "without a suffix"


def other_suffixes(root: Path) -> Counter[str]:
    """How many files below a folder are not images by their suffix, by suffix, such as .heic.

    Hidden names are left out. Links to folders are followed, each folder is counted once, and one that cannot be listed
    is skipped.
    """
    seen, counts, pending = set[tuple[int, int]](), Counter[str](), [os.fspath(root)]
    while pending:
        folder = pending.pop()
        try:
            stat = os.stat(folder)  # noqa: PTH116 - a path need not be UTF-8
            with os.scandir(folder) as entries:
                if (stat.st_dev, stat.st_ino) in seen:
                    continue
                seen.add((stat.st_dev, stat.st_ino))
                visible = [entry for entry in entries if not entry.name.startswith(".")]
        except OSError:
            continue
        pending += [entry.path for entry in visible if entry.is_dir()]
        suffixes = (Path(entry.name).suffix.lower() for entry in visible if entry.is_file())
        counts.update(suffix or NO_SUFFIX for suffix in suffixes if suffix not in SUFFIXES)
    return counts
