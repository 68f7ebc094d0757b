"""Set-up of the processor for a job: threads and the allocator; and what memory the job has used."""

import ctypes
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from scfs.distributed import num_cores
from scfs.process import owns_process

# From glibc's malloc.h
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
NEVER = 2**31 - 1


@contextmanager
def cpu_setup(device: torch.device, threads: int | str = "auto", *, keep_memory: bool = True) -> Iterator[None]:
    """What every job runs within: torch on this process's cores, and freed memory kept where the work is on the CPU.

    threads: `auto` is one per core. torch's own default may be one: torchrun sets OMP_NUM_THREADS=1. The number of
    threads before is restored at the end. In a program that imports scfs, threads that are not asked for and the
    allocator are left alone.
    """
    before = torch.get_num_threads()
    if threads != "auto":
        torch.set_num_threads(int(threads))
    elif owns_process():
        torch.set_num_threads(num_cores())
    if keep_memory and device.type == "cpu" and owns_process():
        keep_freed_memory()
    try:
        yield
    finally:
        torch.set_num_threads(before)


def keep_freed_memory() -> bool:
    """Have freed memory reused instead of returned to the system; returns whether that could be arranged.

    A step on a CPU frees and takes gigabytes. By default glibc gives each large block back at once, and the system
    must clear every page of the next one: several hundred thousand page faults a step of a ResNet-50. Other
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
    unit = 1 if sys.platform == "darwin" else 1024  # macOS reports bytes, others kilobytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
