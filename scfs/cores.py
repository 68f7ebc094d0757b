"""The cores that this process may use, and a core of its own for each of torch's threads."""

import math
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import torch

CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")  # of Linux's control groups: microseconds, of so many
THREADS = Path("/proc/self/task")
BY_USER = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY")  # environment variables that choose the cores of threads
NUMBERS_PER_THREAD = 2**16  # torch shares fewer among fewer threads

_before: list[int] | None = None  # what the main thread was allowed before it was bound


def allowed_cores() -> list[int]:
    """The cores on which this process may run, whether or not its threads are bound to some of them now."""
    if _before is not None:
        return _before
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [*range(os.cpu_count() or 1)]


def core_quota() -> int:
    """The cores that a container may use at a time, rounded up (docker --cpus); on other systems no limit."""
    try:
        quota, period = CPU_QUOTA.read_text(encoding="ascii").split()
        return max(1, math.ceil(int(quota) / int(period)))
    except (OSError, ValueError):  # there is no such file, or no limit in it: "max"
        return sys.maxsize


@contextmanager
def bound_threads(cores: Sequence[int]) -> Iterator[None]:
    """Bind torch's threads to one of the cores each, if they are as many; only on Linux.

    Written by hand for speed: threads wait for each other by spinning, in some kernels of oneDNN without end. Where
    another program runs too, Linux may leave two of them on the same core; then one spins for its whole time slice
    while the other could have finished, and a step takes dozens of times as long (benchmarks/busy_cores.py).
    OMP_PROC_BIND would bind processes started from here too, such as the workers of a loader.
    """
    global _before
    if len(cores) < 2 or torch.get_num_threads() != len(cores) or not _may_bind():
        yield
        return
    allowed, pool = allowed_cores(), _new_threads()
    if len(pool) == len(cores) - 1:  # otherwise there were some already, and which are torch's cannot be told
        _before = allowed
        _bind({0: cores[0], **dict(zip(pool, cores[1:], strict=True))})
    try:
        yield
    finally:
        unbind(allowed, [0, *pool])
        _before = None


def unbind(allowed: Sequence[int], threads: Sequence[int] = (0,)) -> None:
    """Let threads, by default the calling one, run on all allowed cores again; also for a process started here."""
    if hasattr(os, "sched_setaffinity"):
        for thread in threads:
            with suppress(OSError):  # the thread has ended
                os.sched_setaffinity(thread, allowed)


def _may_bind() -> bool:
    return _before is None and THREADS.is_dir() and hasattr(os, "sched_setaffinity") and not {*BY_USER} & {*os.environ}


def _new_threads() -> list[int]:
    """The threads that torch starts for its first parallel work, by Linux's numbers."""
    before = {*THREADS.iterdir()}
    torch.zeros(NUMBERS_PER_THREAD * torch.get_num_threads()).add_(1)
    return sorted(int(thread.name) for thread in {*THREADS.iterdir()} - before)


def _bind(core_of: dict[int, int]) -> None:
    for thread, core in core_of.items():
        with suppress(OSError):  # not permitted here
            os.sched_setaffinity(thread, {core})
