"""Run folders below a folder of photos: what scfs wrote there is no data."""

import os
from collections.abc import Collection
from contextlib import suppress

from scfs.data.decode import SUFFIXES

# Names in `scfs.runs.layout`: a folder with the first and one of the others is a run folder.
SETTINGS, WRITTEN = "settings.toml", ("environment.json", "metrics.jsonl", "last.pt")
MARKS = {name.encode() for name in (SETTINGS, *WRITTEN)}


def is_run(names: Collection[str]) -> bool:
    """Whether files of these names make their folder a run folder."""
    return SETTINGS in names and any(name in names for name in WRITTEN)


def holds_only_runs(folder: str) -> bool:
    """Whether a folder is a run folder or holds some and no images, as `runs` does."""
    if _is_run_folder(folder):
        return True
    runs = 0
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.name.lower().endswith(SUFFIXES) or (entry.is_dir() and not _is_run_folder(entry.path)):
                return False
            runs += entry.is_dir()
    return runs > 0


def _is_run_folder(folder: str) -> bool:
    return is_run([name for name in (SETTINGS, *WRITTEN) if os.path.isfile(os.path.join(folder, name))])  # noqa: PTH113, PTH118 - a path need not be UTF-8
