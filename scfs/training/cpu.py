"""CPU set-up of a job, threads and allocator, and its peak memory."""

import ctypes
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch

from scfs.cores import bound_threads
from scfs.distributed import num_cores, own_cores, world_size
from scfs.portable import peak_resident_bytes
from scfs.process import owns_process

# From glibc's malloc.h
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
NEVER = 2**31 - 1
STATUS = Path("/proc/self/status")
LEAST_LIMIT, THREADS_PER_CORE = 32, 4
LOGGER = logging.getLogger("scfs")


@contextmanager
def cpu_setup(device: torch.device, threads: int | str = "auto", *, keep_memory: bool = True) -> Iterator[None]:
    """Context of every job: torch uses this process's cores and, if the work is on the CPU, reuses freed memory.

    threads: `auto` is what OMP_NUM_THREADS says or, without it, one per core; then each has a core of its own. The
    previous number of threads is restored at the end. In a program that imports scfs, the allocator is left alone, and
    so are threads unless they are set.
    """
    before = torch.get_num_threads()
    if threads != "auto":
        torch.set_num_threads(usable_threads(int(threads)))
    elif owns_process() and not _threads_are_given():
        torch.set_num_threads(num_cores())
    owns_cores = device.type == "cpu" and owns_process()
    if keep_memory and owns_cores:
        keep_freed_memory()
    try:
        with bound_threads(own_cores() if owns_cores else []):
            yield
    finally:
        torch.set_num_threads(before)


def _threads_are_given() -> bool:
    """Whether the user chose a number of threads by OMP_NUM_THREADS, which torchrun sets to 1 where it is unset."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    return given != "" and not (given == "1" and world_size() > 1)


def usable_threads(count: int) -> int:
    """The number of threads to use: at most a few per core, since the system ends a process that starts thousands."""
    most = max(LEAST_LIMIT, THREADS_PER_CORE * num_cores())
    if count > most:
        LOGGER.warning("%d threads are too many for %d cores; using %d.", count, num_cores(), most)
    return min(count, most)


def keep_freed_memory() -> bool:
    """Reuse freed memory instead of returning it to the system; returns whether that is possible.

    A step on a CPU allocates and frees gigabytes. By default glibc gives each large block back at once, and the system
    must clear every page of the next one: several hundred thousand page faults per step of a ResNet-50. Other
    allocators (jemalloc, macOS) have no such call, or do not need it.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:  # not glibc
        return False
    return bool(mallopt(M_MMAP_MAX, 0) and mallopt(M_TRIM_THRESHOLD, NEVER))


def peak_memory(device: torch.device) -> int:
    """The most bytes that this process has used so far, on its device."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if sys.platform.startswith("linux"):  # where a process inherits the ru_maxrss of the one that started it
        with suppress(OSError, StopIteration):
            lines = STATUS.read_text(encoding="utf-8").splitlines()
            return 1024 * int(next(line for line in lines if line.startswith("VmHWM:")).split()[1])
    return peak_resident_bytes()
