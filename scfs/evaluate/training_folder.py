"""Folders of networks trained with labels. They are run folders too: whatever reads a run's backbone reads theirs."""

import itertools
from pathlib import Path
from typing import Any

from scfs.errors import UserError
from scfs.evaluate.own_data import own_data
from scfs.recipe import read_toml
from scfs.runs import layout
from scfs.runs.results import run_of
from scfs.training.resumable import FREE


def open_folder(task: str, target: str, out: str, settings: dict[str, Any]) -> Path:
    """A new folder, or one where the same work was started and not finished; finished ones are left alone.

    task: the command, such as finetune. If `out` is empty: TASK, TASK-2, ... in the target's run folder, or under runs.
    """
    parent = run_of(target) or Path("runs")
    numbered = (parent / (task if number == 1 else f"{task}-{number}") for number in itertools.count(1))
    for folder in [Path(out)] if out else numbered:
        if not folder.exists():
            try:
                folder.mkdir(parents=True)
            except OSError as error:
                raise UserError(f"Cannot create {folder}: {error.strerror}; choose another --out.") from None
            limit = own_data(target).max_megapixels  # for those who use the folder as a run
            layout.write_settings(folder, {task: settings, "data": {"max_megapixels": limit}})
            return folder
        if not (folder / layout.LAST).exists() and _settings(folder, task) == _without_free(settings):
            return folder
    raise UserError(f"{out} exists and does not hold the same unfinished work; choose another --out.")


def task_settings(folder: Path, task: str) -> dict[str, Any]:
    """The settings that a folder was trained with; empty if it is not of this task."""
    path = folder / layout.SETTINGS
    return dict(read_toml(path).get(task, {})) if path.is_file() else {}


def _settings(folder: Path, task: str) -> dict[str, Any]:
    return _without_free(task_settings(folder, task))


def _without_free(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name not in FREE}
