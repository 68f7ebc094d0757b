"""Millions of paths in a few arrays, which loader processes share; each would copy a list of strings."""

import os
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from scfs.printable import one_line


class Names(Sequence[bytes]):
    """Byte strings, one after the other, and where each ends."""

    def __init__(self, blob: NDArray[np.uint8], ends: NDArray[np.int64]):
        self.blob, self.ends = blob, ends

    @classmethod
    def of(cls, names: Sequence[bytes]) -> "Names":
        """The names of a list."""
        ends = np.cumsum(np.fromiter(map(len, names), np.int64, len(names)))
        return cls(np.frombuffer(b"".join(names), np.uint8), ends)

    def __len__(self) -> int:
        return len(self.ends)

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> list[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | list[bytes]:
        if isinstance(index, slice):
            return self._several(*index.indices(len(self))[:2])
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        index %= len(self)
        start = self.ends[index - 1] if index else 0
        return self.blob[start : self.ends[index]].tobytes()

    def _several(self, start: int, stop: int) -> list[bytes]:
        """Much faster than one by one."""
        if stop <= start:
            return []
        first = int(self.ends[start - 1]) if start else 0
        text = self.blob[first : self.ends[stop - 1]].tobytes()
        ends = [0, *(self.ends[start:stop] - first).tolist()]
        return [text[a:b] for a, b in pairwise(ends)]


class Files(NamedTuple):
    """Paths of files: root, folder below it, name."""

    root: str
    folders: Names
    folder_of: NDArray[np.int32]  # index in `folders` of each file
    names: Names

    def path(self, index: int) -> str:
        """The path of one file."""
        folder = self.folders[int(self.folder_of[index])]
        return os.path.join(self.root, os.fsdecode(folder), os.fsdecode(self.names[index]))  # noqa: PTH118 - for speed


def readable(name: str) -> str:
    """A name for printing: bytes that are not text are replaced."""
    return os.fsencode(name).decode("utf-8", "replace")


def shown(name: str) -> str:
    """A name for printing on one line: line breaks and other control characters are written out too."""
    return one_line(readable(name))
