import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from scfs.errors import UserError


def check_new(path: Path) -> None:
    """Refuse a file that exists or cannot be written, before the work that is to fill it."""
    if path.exists() or path.is_symlink():
        raise UserError(f"{path} exists and is not written over; choose another name, or remove it first.")
    part = _part(path)
    try:
        part.open("xb").close()
        part.unlink()
    except OSError as error:
        raise _refusal(path, error) from None


def write_new(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a new file that is either whole or not there."""
    check_new(path)
    part = _part(path)
    try:
        with part.open("xb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except (OSError, RuntimeError) as error:  # a full disk comes as a cryptic RuntimeError from torch
        raise _refusal(path, error) from None
    finally:
        part.unlink(missing_ok=True)


def _part(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.part")


def _refusal(path: Path, error: Exception) -> UserError:
    reason = (isinstance(error, OSError) and error.strerror) or str(error).partition("\n")[0]
    return UserError(f"Cannot write {path} ({reason}); choose a folder that exists, can be written to and has room.")
