import shutil
import zipfile
from pathlib import Path
from typing import Any

import torch

from scfs.errors import UserError
from scfs.runs.files import limit_that_stopped, write_atomic

FORMAT = 1


def save(path: Path, content: dict[str, Any]) -> None:
    """Write a checkpoint atomically; plain types and tensors only."""
    try:
        write_atomic(path, lambda file: torch.save({"scfs_checkpoint": FORMAT, **content}, file))
    except (OSError, RuntimeError) as error:  # torch raises a cryptic RuntimeError on a full disk
        resume = "resume from the previous checkpoint, which is intact" if path.exists() else "start again"
        raise UserError(f"Cannot write checkpoint {path} ({_problem(path, error)} and {resume}.") from None


def load(path: Path, device: torch.device | str = "cpu") -> dict[str, Any]:
    """Read a checkpoint that `save` wrote, after checking every byte: torch does not notice flipped bits."""
    if not path.is_file():
        raise UserError(f"No checkpoint at {path}.")
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
    except (zipfile.BadZipFile, OSError):
        raise UserError(f"{path} is not a checkpoint of scfs, or it is cut short.") from None
    if damaged is not None:
        raise UserError(f"Checkpoint {path} is damaged (its part {damaged} fails its checksum); use an older one.")
    try:
        content = torch.load(path, map_location=device, weights_only=True)
    except Exception:  # torch raises many types for a foreign file, and advises to load it unsafely
        raise UserError(f"{path} is not a checkpoint of scfs; restore the one that the run saved.") from None
    if not isinstance(content, dict) or content.get("scfs_checkpoint") != FORMAT:
        raise UserError(f"{path} is not a checkpoint of scfs.")
    return content


def _problem(path: Path, error: Exception) -> str:
    """Why a checkpoint cannot be written, and what to do; torch does not pass on the reason of the system."""
    if not path.parent.is_dir():
        return "its folder was removed); restore it"
    if limit := limit_that_stopped(error, path.parent):
        return f"files are limited to {limit}); raise the limit with ulimit -f"
    free = shutil.disk_usage(path.parent).free // 2**20
    reason = error if isinstance(error, OSError) else "not all of it could be written"
    return f"{reason}; {free} MB free); free some space"
