"""Atomic writes: even after a crash, a file is either the complete old one or the complete new one."""

import errno
import hashlib
import json
import logging
import os
import platform
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, TextIO, TypeVar

from scfs.errors import UserError, file_size_limit
from scfs.portable import NO_FOLLOW, OPEN_FLAGS, try_lock, wait_for_lock
from scfs.regular_file import read_regular

LOCK = ".lock"
# Lustre without flock, NFS without lockd, and others; the last: NFS, for a lock file that may only be read.
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF)
# How temporary files begin that only the holder of a folder writes.
HOLDERS = (".last.", ".epoch_", ".state.", ".part-")
OLD_SECONDS = 3600.0
LOGGER = logging.getLogger("scfs")
MOST_BYTES = 2**30  # of a JSON file or a log
Content = TypeVar("Content", list[Any], dict[str, Any])


def write_atomic(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a file, or replace it: a temporary file beside it, fsync, rename, fsync of the folder.

    The temporary file is new and has a random name, and a rename replaces a symbolic link itself: whatever somebody put
    into the folder, no other file is written to.
    """
    temporary, descriptor = _create_temporary(path)
    try:
        with os.fdopen(descriptor, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        if error.errno is not None:  # an error in writing names no file
            error.filename = str(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)


def append_text(path: Path, text: str) -> None:
    """Append to a text file, or begin one; a symbolic link in its place is refused."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | NO_FOLLOW | OPEN_FLAGS, 0o666)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _link_refused(path) from None
        if error.errno is not None:
            error.filename = str(path)
        raise


def write_figure(path: Path, figure: Any, **options: Any) -> None:
    """Write a figure of matplotlib, or replace it, in the format of its suffix; makes its folder if necessary."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, lambda file: figure.savefig(file, format=path.suffix.lstrip("."), **options))


def write_text(path: Path, text: str) -> None:
    """Write a text file, or replace it."""
    write_atomic(path, lambda file: file.write(text.encode()))


def write_json(path: Path, content: list[Any] | dict[str, Any]) -> None:
    """Write a JSON file, or replace it."""
    write_text(path, json.dumps(content, indent=2) + "\n")


def read_json(path: Path, empty: Content) -> Content:
    """The content of a JSON file, of the same type as `empty` (a list or a dict); `empty` if there is no file."""
    data = _read(path)
    try:
        content = empty if data is None else json.loads(data.decode())
    except ValueError:  # not text, or not JSON
        content = None
    if not isinstance(content, type(empty)):
        raise damaged(path)
    return content


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a file with one per line; empty if there is no file."""
    data = _read(path) or b""
    try:
        rows = [json.loads(line) for line in data.decode().splitlines()]
    except ValueError:
        raise damaged(path) from None
    if not all(isinstance(row, dict) for row in rows):
        raise damaged(path)
    return rows


def write_json_lines(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Write a file with one JSON object per line, or replace it."""
    write_text(path, "".join(f"{json.dumps(row)}\n" for row in rows))


def damaged(path: Path) -> UserError:
    """The error of a file that is not as scfs writes it."""
    return UserError(f"{path} is damaged; move it away, and the next command starts a new one.")


def _read(path: Path) -> bytes | None:
    try:
        return read_regular(path, limit=MOST_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UserError(f"Cannot read {path}: {error.strerror}; move it away, or check its permissions.") from None


def digest_of(content: Any) -> str:
    """A short hash of some content: eight hexadecimal digits."""
    return hashlib.blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=4).hexdigest()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Lock a file to read and then write it: only one process at a time is inside."""
    with _open_shared_lock(path.with_name(f".{path.name}.lock")) as file:
        _lock(file, wait_for_lock, path.parent)
        yield


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold a folder for writing, and sweep what an earlier process left half-written; a `UserError` if it is held.

    The lock ends with the process, however that ends.
    """
    with _open_lock(folder / LOCK) as file:
        try:
            _lock(file, try_lock, folder)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                raise
            holder = file.read().strip() or "unknown"
            raise UserError(
                f"{folder} is in use by process {holder}; wait until that ends, or choose another folder."
            ) from None
        file.seek(0)
        file.truncate()
        file.write(f"{os.getpid()} on {platform.node()}\n")
        file.flush()
        sweep(folder)
        yield


def sweep(folder: Path) -> None:
    """Remove the temporary files of processes that were killed while they wrote.

    Those that only the holder of a folder writes, such as checkpoints, at once; others, which may be results that
    another command is writing now, when they are old.
    """
    for path in folder.glob(".*.part"):
        with suppress(FileNotFoundError):  # another command has just finished with it
            is_ours = path.is_symlink() or (path.is_file() and path.name.startswith(HOLDERS))
            if is_ours or (path.is_file() and time.time() - path.stat().st_mtime > OLD_SECONDS):
                path.unlink()


def _open_lock(path: Path) -> TextIO:
    try:
        return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | NO_FOLLOW | OPEN_FLAGS, 0o666), "r+")
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _link_refused(path) from None
        raise


def _open_shared_lock(path: Path) -> TextIO:
    """A lock file that may be a colleague's, in a folder that both may write to: to wait for it, reading is enough."""
    try:
        return _open_lock(path)
    except PermissionError:
        if not path.is_file():
            raise
        return os.fdopen(os.open(path, os.O_RDONLY | NO_FOLLOW | OPEN_FLAGS), "r")


def _lock(file: TextIO, lock: Callable[[TextIO], object], folder: Path) -> None:
    """Lock a file where the file system can, and otherwise warn once."""
    try:
        lock(file)
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        _warn_without_locks(folder)


@cache
def _warn_without_locks(folder: Path) -> None:
    LOGGER.warning("%s is on a file system without locks: let no two commands write there at the same time.", folder)


def check_new(path: Path, *, make_parents: bool = False) -> None:
    """Raise a `UserError` if a file or folder exists or cannot be written, before the work that produces it.

    make_parents: create the folder that it is to be in.
    """
    if path.exists() or path.is_symlink():
        raise UserError(f"{path} exists and is not overwritten; choose another name, or remove it first.")
    try:
        if make_parents:
            path.parent.mkdir(parents=True, exist_ok=True)
        temporary, descriptor = _create_temporary(path)
        os.close(descriptor)
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
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")


def _create_temporary(path: Path) -> tuple[Path, int]:
    """A new, empty file beside a path, and its descriptor."""
    temporary = _temporary(path)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_FOLLOW | OPEN_FLAGS
    try:
        return temporary, os.open(temporary, flags, 0o666)
    except OSError as error:
        error.filename = str(path)
        raise


def _link_refused(path: Path) -> UserError:
    return UserError(
        f"{path} is a symbolic link, which scfs does not write through; replace it by a file or remove it."
    )


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
