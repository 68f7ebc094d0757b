"""Atomic writes: even after a crash, a file is either the complete old one or the complete new one."""

import errno
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from scfs.errors import UserError, file_size_limit

Content = TypeVar("Content", list[Any], dict[str, Any])


def write_atomic(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a file, or replace it: a temporary file beside it, fsync, rename, fsync of the folder."""
    temporary = _temporary(path)
    try:
        with temporary.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        if error.errno is not None:  # an error in writing names no file, and one in opening the temporary one
            error.filename = str(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file, or replace it."""
    write_atomic(path, lambda file: file.write(text.encode()))


def write_json(path: Path, content: list[Any] | dict[str, Any]) -> None:
    """Write a JSON file, or replace it."""
    write_text(path, json.dumps(content, indent=2) + "\n")


def read_json(path: Path, empty: Content) -> Content:
    """The content of a JSON file, of the same type as `empty` (a list or a dict); `empty` if there is no file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return empty
    except OSError as error:
        raise UserError(f"Cannot read {path}: {error.strerror}; check its permissions.") from None
    except ValueError:  # not text, or not JSON
        content = None
    if not isinstance(content, type(empty)):
        raise UserError(f"{path} is damaged; move it away, and the next command starts a new one.")
    return content


def digest_of(content: Any) -> str:
    """A short hash of some content: eight hexadecimal digits."""
    return hashlib.blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=4).hexdigest()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Lock a file to read and then write it: only one process at a time is inside."""
    lock = path.with_name(f".{path.name}.lock")
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def check_new(path: Path) -> None:
    """Raise a `UserError` if a file or folder exists or cannot be written, before the work that produces it."""
    if path.exists() or path.is_symlink():
        raise UserError(f"{path} exists and is not overwritten; choose another name, or remove it first.")
    temporary = _temporary(path)
    try:
        temporary.open("xb").close()
        temporary.unlink()
    except OSError as error:
        raise _refusal(path, error) from None


def write_new(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a file that must not exist yet."""
    check_new(path)
    try:
        write_atomic(path, write)
    except (OSError, RuntimeError) as error:  # torch raises a cryptic RuntimeError on a full disk
        raise _refusal(path, error) from None


def write_new_folder(path: Path, write: Callable[[Path], object]) -> None:
    """Write a folder of files that must not exist yet: all of it, or nothing if `write` raises an error."""
    check_new(path)
    temporary = _temporary(path)
    try:
        temporary.mkdir()
        write(temporary)
        for file in temporary.iterdir():
            with file.open("rb") as written:
                os.fsync(written.fileno())
        temporary.rename(path)
        _sync_folder(path.parent)
    except (OSError, RuntimeError) as error:
        raise _refusal(path, error) from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def limit_that_stopped(error: Exception, folder: Path) -> str:
    """The limit on the size of files that stopped a write to an existing folder, such as "8 kB"; empty if none did.

    torch does not pass on the reason of the system: then it is the limit if that is below the free space.
    """
    if isinstance(error, OSError) and error.errno not in (None, errno.EFBIG):  # NumPy raises one without a number
        return ""
    return file_size_limit(below=shutil.disk_usage(folder).free)


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.part")


def _sync_folder(folder: Path) -> None:
    """Make a rename durable; skipped where the file system cannot sync a folder."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _refusal(path: Path, error: Exception) -> UserError:
    if limit := limit_that_stopped(error, path.parent):
        return UserError(f"Cannot write {path} (files are limited to {limit}); raise the limit with ulimit -f.")
    reason = (isinstance(error, OSError) and error.strerror) or str(error).partition("\n")[0]
    return UserError(f"Cannot write {path} ({reason}); choose a folder that exists, is writable and has free space.")
