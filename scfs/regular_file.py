"""Open regular files only: a named pipe would block for ever, and a device such as /dev/zero never ends."""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

from scfs.portable import NON_BLOCKING, OPEN_FLAGS

KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def check_regular(path: str | Path) -> int:
    """The size of a regular file; an `OSError` for anything else, without opening it."""
    return _size(os.stat(path), path)  # noqa: PTH116 - a path need not be UTF-8


def open_regular(path: str | Path) -> BinaryIO:
    """Open a regular file for reading; an `OSError` for anything else. Never blocks."""
    check_regular(path)
    file = os.fdopen(os.open(path, os.O_RDONLY | NON_BLOCKING | OPEN_FLAGS), "rb")
    try:
        _size(os.fstat(file.fileno()), path)  # it may have been replaced in between
    except OSError:
        file.close()
        raise
    return file


def read_regular(path: str | Path, *, limit: int) -> bytes:
    """The bytes of a regular file; an `OSError` if there are more than `limit`."""
    with open_regular(path) as file:
        data = file.read(limit + 1) if _size(os.fstat(file.fileno()), path) <= limit else None
    if data is None or len(data) > limit:
        raise OSError(errno.EFBIG, f"it has more than {limit:,} bytes", str(path))
    return data


def _size(status: os.stat_result, path: str | Path) -> int:
    if not stat.S_ISREG(status.st_mode):
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        kind = KINDS.get(stat.S_IFMT(status.st_mode), "something else")
        raise OSError(errno.EINVAL, f"it is {kind}, not a file", str(path))
    return status.st_size
