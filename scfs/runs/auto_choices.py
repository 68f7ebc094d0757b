from collections.abc import Iterable
from pathlib import Path
from typing import Any

from scfs.errors import UserError
from scfs.runs.files import read_json, write_json

AUTO = "auto.json"


def write_auto_choices(folder: Path, choices: Iterable[tuple[str, Any, str]]) -> None:
    """Record how each `auto` setting was resolved, as (setting, value, reason).

    A resumed run has none left to resolve, and keeps its record.
    """
    rows = [{"setting": setting, "value": value, "reason": reason} for setting, value, reason in choices]
    if rows:
        write_json(folder / AUTO, rows)


def with_auto_restored(settings: dict[str, dict[str, Any]], folder: Path) -> dict[str, Any]:
    """The settings of a run as they were before `auto` was resolved, so that another run resolves it again.

    A setting that was given another value later, on resuming, keeps it. Runs of version 0.1 have no record: their
    settings stay as they are.
    """
    restored = {name: dict(value) if isinstance(value, dict) else value for name, value in settings.items()}
    for setting, value in _read_choices(folder / AUTO):
        section, _, name = setting.partition(".")
        if restored.get(section, {}).get(name) == value:
            restored[section][name] = "auto"
    return restored


def _read_choices(path: Path) -> list[tuple[str, Any]]:
    try:
        return [(str(row["setting"]), row["value"]) for row in read_json(path, [])]
    except (KeyError, TypeError):
        raise UserError(f"{path} is damaged; restore it, or remove it to keep what `auto` chose.") from None
