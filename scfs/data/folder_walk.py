import os
from collections import Counter
from pathlib import Path

from scfs.data.decode import SUFFIXES
from scfs.data.run_folders import is_run

NO_SUFFIX = "without a suffix"
BROKEN_LINK = "missing (broken link)"  # to a file, or to a folder of images


def other_suffixes(root: Path) -> Counter[str]:
    """How many files below a folder are not images by their suffix, by suffix, such as .heic, and how many links break.

    Hidden names and run folders are left out. Links to folders are followed, each folder is counted once, and one that
    cannot be listed is skipped.
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
        if folder != os.fspath(root) and is_run({entry.name for entry in visible}):
            continue
        pending += [entry.path for entry in visible if entry.is_dir()]
        suffixes = (Path(entry.name).suffix.lower() for entry in visible if entry.is_file())
        counts.update(suffix or NO_SUFFIX for suffix in suffixes if suffix not in SUFFIXES)
        if broken := sum(entry.is_symlink() and not os.path.exists(entry.path) for entry in visible):  # noqa: PTH110
            counts[BROKEN_LINK] += broken
    return counts
