"""Checkpoints: written atomically, checked byte by byte when they are read, and the last two of a run are kept."""

import hashlib
import os
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import torch

from scfs.errors import UserError
from scfs.runs.files import limit_that_stopped, read_json, write_atomic, write_json
from scfs.runs.zip_check import BadParts, damaged_part

FORMAT = 1
WRITER = re.compile("PytorchStreamWriter|inline_container")  # in errors of torch about what it writes to
DIGESTS = "checkpoints.json"  # SHA-256 of the newest checkpoints of a folder, by name
NUM_DIGESTS = 3  # that are remembered: the one being written, the last and the previous one


def save(path: Path, content: dict[str, Any]) -> None:
    """Write a checkpoint atomically; plain types and tensors only."""
    _write(path, content, before=lambda _: None)


def save_and_keep(path: Path, content: dict[str, Any]) -> None:
    """Write a run's last checkpoint, and keep the one before it under the name `previous` gives.

    SHA-256 digests are recorded before the files change places: whenever the machine stops, the digests of both files
    are known, and both are complete.
    """

    def before(digest: str) -> None:
        recorded = read_json(path.with_name(DIGESTS), {})
        known = [digest, *(each for each in recorded.get(path.name, []) if each != digest)]
        write_json(path.with_name(DIGESTS), recorded | {path.name: known[:NUM_DIGESTS]})
        if path.exists():
            _keep(path, previous(path))

    _write(path, content, before=before)


def previous(path: Path) -> Path:
    """Where the checkpoint before the last one is kept."""
    return path.with_name(f"{path.stem}.previous{path.suffix}")


def exists(path: Path) -> bool:
    """Whether a run has a checkpoint to resume from."""
    return path.exists() or previous(path).exists()


def load(path: Path, device: torch.device | str = "cpu") -> dict[str, Any]:
    """Read a checkpoint that `save` wrote, after checking every byte: torch does not notice flipped bits."""
    if not path.is_file():
        raise UserError(f"No checkpoint at {path}.")
    try:
        damaged = damaged_part(path)
    except (BadParts, OSError) as error:
        raise UserError(f"{path} is not a checkpoint of scfs, or it is cut short ({_reason(error)}).") from None
    if damaged is not None:
        raise UserError(f"Checkpoint {path} is damaged (its part {damaged} fails its checksum); {_advice(path)}.")
    try:
        content = torch.load(path, map_location=device, weights_only=True)
    except Exception:  # torch raises many types for a foreign file, and advises to load it unsafely
        raise UserError(f"{path} is not a checkpoint of scfs; restore the one that the run saved.") from None
    if not isinstance(content, dict) or content.get("scfs_checkpoint") != FORMAT:
        raise UserError(f"{path} is not a checkpoint of scfs.")
    return content


def load_last(path: Path, warn: Callable[[str], object]) -> dict[str, Any] | None:
    """A run's last checkpoint or, if that is damaged or gone, the one before it, with a warning; None without any."""
    candidates = [each for each in (path, previous(path)) if each.exists()]
    problems = []
    for candidate in candidates:
        try:
            content = load(candidate)
        except UserError as error:
            problems.append(str(error))
            continue
        if candidate == path:
            _warn_of_another(path, warn)
        else:
            reason = problems[0] if problems else f"{path} is gone."
            warn(f"{reason.rstrip('.')}; resuming from the checkpoint before it, {candidate}.")
        return content
    if problems:
        raise UserError(problems[0])
    return None


def _warn_of_another(path: Path, warn: Callable[[str], object]) -> None:
    """Warn of a whole checkpoint whose SHA-256 is not one that the run recorded, if it recorded any."""
    known = read_json(path.with_name(DIGESTS), {}).get(path.name, [])
    if known and _digest(path) not in known:
        warn(f"{path} is not the checkpoint that the run saved (its SHA-256 differs); resuming from it all the same.")


def _reason(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error).partition("\n")[0].rstrip(".")


def _advice(path: Path) -> str:
    kept = previous(path)
    return f"the one before it is {kept}" if path != kept and kept.exists() else "use an older one"


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _keep(path: Path, kept: Path) -> None:
    """Give a file a second name, replacing what has it; where there are no hard links, move the file."""
    temporary = kept.with_name(f".{kept.name}.part")
    try:
        with suppress(FileNotFoundError):
            temporary.unlink()
        os.link(path, temporary, follow_symlinks=False)
        temporary.replace(kept)
    except (OSError, NotImplementedError):
        path.replace(kept)


class _Written:
    """A file to write to that computes a digest, and remembers why writing failed: torch does not pass that on."""

    def __init__(self, file: BinaryIO):
        self.file, self.digest = file, hashlib.sha256()
        self.error: Exception | None = None

    def write(self, data: bytes) -> int:
        try:
            written = self.file.write(data)
            self.digest.update(data)
        except Exception as error:
            self.error = error
            raise
        return written

    def flush(self) -> None:
        self.file.flush()


def _write(path: Path, content: dict[str, Any], before: Callable[[str], object]) -> None:
    """Write a checkpoint; `before` is called with its SHA-256 once it is complete, before it takes its place."""
    if broken := _not_finite(content):
        step = f" at step {content['step']}" if "step" in content else ""
        raise UserError(
            f"Nothing was saved{step}: {broken} is not finite everywhere; resume from the last checkpoint, or start "
            "again with a lower learning rate."
        )
    written: _Written | None = None

    def write(file: BinaryIO) -> None:
        nonlocal written
        written = _Written(file)
        torch.save({"scfs_checkpoint": FORMAT, **content}, written)  # type: ignore[arg-type]
        before(written.digest.hexdigest())

    try:
        write_atomic(path, write)
    except (OSError, RuntimeError) as error:  # torch raises a cryptic RuntimeError on a full disk
        reason = (written and written.error) or error
        if not isinstance(reason, OSError) and WRITER.search(str(reason)) is None:  # not about the file
            raise
        resume = "resume from the previous checkpoint, which is intact" if path.exists() else "start again"
        raise UserError(f"Cannot write checkpoint {path} ({_problem(path, reason)} and {resume}.") from None


def _not_finite(content: Any, name: str = "") -> str | None:
    """The name of a tensor that is inf or NaN somewhere; None if all are finite."""
    if isinstance(content, torch.Tensor):
        return name if content.is_floating_point() and not content.isfinite().all() else None
    items = (
        content.items()
        if isinstance(content, dict)
        else enumerate(content)
        if isinstance(content, list | tuple)
        else ()
    )
    found = (_not_finite(value, f"{name}.{key}".lstrip(".")) for key, value in items)
    return next(filter(None, found), None)


def _problem(path: Path, error: Exception) -> str:
    """Why a checkpoint cannot be written, and what to do."""
    if not path.parent.is_dir():
        return "its folder was removed); restore it"
    if limit := limit_that_stopped(error, path.parent):
        return f"files are limited to {limit}); raise the limit with ulimit -f"
    free = shutil.disk_usage(path.parent).free // 2**20
    reason = (isinstance(error, OSError) and error.strerror) or "not all of it could be written"
    return f"{reason}; {free} MB free); free some space"
