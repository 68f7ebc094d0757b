from collections.abc import Iterator
from contextlib import contextmanager

_owned = False


@contextmanager
def own_process() -> Iterator[None]:
    """Within, this process runs a command of scfs and nothing else: the command line."""
    global _owned
    before, _owned = _owned, True
    try:
        yield
    finally:
        _owned = before


def owns_process() -> bool:
    """Whether jobs may tune threads and allocator of the whole process; not in a program that imports scfs."""
    return _owned
