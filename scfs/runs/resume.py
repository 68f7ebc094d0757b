from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from scfs.errors import UserError
from scfs.runs import checkpoint


def saved_state(
    path: Path,
    settings: dict[str, Any],
    *,
    is_free: Callable[[str], bool],
    otherwise: str,
    defaults: dict[str, Any] | None = None,
    comparable: Callable[[str, Any], Any] = lambda _, value: value,
    warn: Callable[[str], object] = lambda _: None,
) -> dict[str, Any] | None:
    """A job's last state, if there is one; its settings must be the same, except those that are free to change.

    `otherwise` is the advice if the settings are meant to differ. Settings that are newer than the state take their
    `defaults`. Values are compared after `comparable(name, value)`. `warn` is told if an older state is used because
    the last one is damaged.
    """
    saved = checkpoint.load_last(path, warn)
    if saved is None:
        return None
    theirs, ours = dict(flat(defaults or {})) | dict(flat(saved["settings"])), dict(flat(settings))
    for name in theirs | ours:
        before, now = (comparable(name, values.get(name)) for values in (theirs, ours))
        if not is_free(name) and before != now:
            raise UserError(
                f"{path} was made with {name} = {theirs.get(name)!r}, not {ours.get(name)!r}; "
                f"resume with the same settings, or {otherwise}."
            )
    return saved


def flat(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Settings by their full names, such as optim.lr."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value
