from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from scfs.errors import UserError
from scfs.runs.files import read_json, write_json

AUTO = "auto.json"


class AutoChoice(NamedTuple):
    """What an `auto` setting of a run was resolved to, and why."""

    setting: str
    value: Any
    reason: str
    given: str = "auto"  # the setting before; for a number of epochs, it may be a time


def write_auto_choices(folder: Path, choices: Iterable[tuple[str, Any, str, str]]) -> None:
    """Record how each `auto` setting was resolved, as (setting, value, reason, given)."""
    if rows := [AutoChoice(*choice)._asdict() for choice in choices]:
        write_json(folder / AUTO, rows)


def with_auto_restored(settings: dict[str, dict[str, Any]], folder: Path) -> dict[str, Any]:
    """The settings of a run as they were before `auto` was resolved, so that another run resolves it again.

    A setting that was given another value later, on resuming, keeps it. Runs of version 0.1 have no record: their
    settings stay as they are.
    """
    restored = {name: dict(value) if isinstance(value, dict) else value for name, value in settings.items()}
    for setting, value, _, given in read_auto_choices(folder):
        section, _, name = setting.partition(".")
        if restored.get(section, {}).get(name) == value:
            restored[section][name] = given
    return restored


def read_auto_choices(folder: Path) -> list[AutoChoice]:
    """How each `auto` setting of a run was resolved; empty without a record."""
    path = folder / AUTO
    try:
        return [
            AutoChoice(str(row["setting"]), row["value"], str(row.get("reason", "")), str(row.get("given", "auto")))
            for row in read_json(path, [])
        ]
    except (AttributeError, KeyError, TypeError):
        raise UserError(f"{path} is damaged; restore it, or remove it to keep what `auto` chose.") from None
