import ctypes
import sys

# From glibc's malloc.h
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
NEVER = 2**31 - 1


def keep_freed_memory() -> bool:
    """Have freed memory reused instead of returned to the system; says whether that could be arranged.

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
