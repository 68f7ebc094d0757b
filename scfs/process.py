import warnings
from collections.abc import Iterator
from contextlib import contextmanager

_owned = False


@contextmanager
def own_process() -> Iterator[None]:
    """Within it, this process runs an scfs command and nothing else, as the command line does."""
    global _owned
    before, _owned = _owned, True
    try:
        with warnings.catch_warnings():
            # matplotlib's, about every letter of a class or folder that its font does not have
            warnings.filterwarnings("ignore", message=r"Glyph \d+ .* missing from font")
            yield
    finally:
        _owned = before


def owns_process() -> bool:
    """Whether jobs may set threads and allocator of the whole process; not in a program that imports scfs."""
    return _owned
