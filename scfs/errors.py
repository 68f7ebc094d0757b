import errno
import re

from scfs import portable

# What to do about the system errors that the user can fix.
ADVICE = {
    errno.EACCES: "check its permissions",
    errno.EPERM: "check its permissions",
    errno.EROFS: "choose a folder that is writable",
    errno.ENOSPC: "free some space on its disk",
    errno.EDQUOT: "free some of your quota",
    errno.EFBIG: "raise the limit on the size of files (ulimit -f)",
    errno.EMFILE: "raise the limit on open files (ulimit -n), or lower the number of workers",
    errno.ENAMETOOLONG: "choose a shorter name",
}


class UserError(ValueError):
    """Something the user can fix: one sentence that names what, where and what to do.

    The command line prints it without a traceback and exits with code 2.
    """


class WorkerDiedError(UserError):
    """A data loader worker was killed. Only its own process knows, so it must not go on: the others wait for it."""


def fixable(error: OSError) -> str | None:
    """The sentence about a system error that the user can fix; None for any other."""
    if "No usable temporary directory" in str(error.strerror):  # from Python's tempfile, which torch uses on import
        if limit := file_size_limit(below=2**10):
            return f"No file can be written: files are limited to {limit}; raise the limit with ulimit -f."
        return f"{error.strerror}; free some space in one of them, or set TMPDIR to a folder that is writable."
    if error.errno not in ADVICE:
        return None
    return f"Cannot read or write {error.filename or 'a file'}: {error.strerror}; {ADVICE[error.errno]}."


def file_size_limit(*, below: int) -> str:
    """The limit of the system on the size of files, such as "8 kB"; empty if it is not below a number of bytes."""
    limit = portable.file_size_limit()
    if limit is None or limit >= below:
        return ""
    return f"{limit / 2**20:.1f} MB" if limit >= 2**20 else f"{limit // 2**10} kB"


# How torch, NumPy, OpenCV and the system put it; torch raises a plain RuntimeError on a CPU.
_MEMORY = re.compile(
    r"out of memory|not enough memory|can(?:'|no)t allocate memory|unable to allocate|insufficient (?:shared )?memory"
    r"|storage size calculation overflowed",
    re.IGNORECASE,
)


# Torch's words, which Triton's about the shared memory of GPUs are not.
_SHARED_MEMORY = re.compile(r"shared memory\s*\(shm\)|out of shared memory|killed by signal: Bus error")


def out_of_shared_memory(error: Exception) -> str | None:
    """The sentence about shared memory that ran out, as in containers by default; None for any other error."""
    if not isinstance(error, RuntimeError) or not _SHARED_MEMORY.search(str(error)):
        return None
    return (
        "Shared memory (/dev/shm), in which data loader workers hand over batches, is probably too small; in a "
        "container, raise it with --shm-size 8g or --ipc=host, or do without workers (data.workers = 0, or --workers "
        "0)."
    )


def out_of_memory(error: Exception) -> str | None:
    """What went wrong if memory ran out, with the size that was asked for; None for any other error."""
    text = str(error)
    if not isinstance(error, MemoryError) and not (isinstance(error, RuntimeError | OSError) and _MEMORY.search(text)):
        return None
    size = re.search(r"(?:tried to|unable to) allocate ([\d.]+ ?\w+)", text, re.IGNORECASE)
    return f"Out of memory{f' (could not allocate {size[1]})' if size else ''}"
