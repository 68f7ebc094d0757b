"""The system calls that differ between Linux, macOS and Windows. On Windows they have not been tried."""

import os
import signal
import sys
from typing import IO

# Windows has no O_NOFOLLOW (links need a privilege there), and opens files as text without O_BINARY.
NO_FOLLOW: int = getattr(os, "O_NOFOLLOW", 0)
NON_BLOCKING: int = getattr(os, "O_NONBLOCK", 0)
OPEN_FLAGS: int = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOINHERIT", 0)
# Ctrl-C, a cluster manager's request, a closed terminal, Slurm's warning before the end of a job
STOP_SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1") if hasattr(signal, name)
)

if sys.platform == "win32":
    import msvcrt
    import time

    LOCKED_BYTE = 2**30  # beyond the content, which others may still read

    def try_lock(file: IO[str]) -> None:
        """Lock a file for this process until it is closed; an `OSError` if another holds it."""
        position = file.tell()
        file.seek(LOCKED_BYTE)
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        finally:
            file.seek(position)

    def wait_for_lock(file: IO[str]) -> None:
        """Lock a file until it is closed, as soon as nobody else holds it."""
        while True:
            try:
                return try_lock(file)
            except OSError:
                time.sleep(0.05)

    def file_size_limit() -> int | None:
        """The limit of the system on the size of files, in bytes; None without one."""
        return None

    def peak_resident_bytes() -> int:
        """The most memory that this process has used, which only psutil could tell on Windows: 0."""
        return 0

else:
    import fcntl
    import resource

    def try_lock(file: IO[str]) -> None:
        """Lock a file for this process until it is closed; an `OSError` if another holds it.

        The lock belongs to the process and is not inherited: workers that outlive it do not hold it.
        """
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def wait_for_lock(file: IO[str]) -> None:
        """Lock a file until it is closed, as soon as nobody else holds it; threads exclude each other too."""
        fcntl.flock(file, fcntl.LOCK_EX)

    def file_size_limit() -> int | None:
        """The limit of the system on the size of files, in bytes; None without one."""
        limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
        return None if limit == resource.RLIM_INFINITY else limit

    def peak_resident_bytes() -> int:
        """The most memory that this process has used."""
        unit = 1 if sys.platform == "darwin" else 1024  # macOS reports bytes, others kilobytes
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
