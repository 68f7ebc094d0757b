"""Decode every image of a source once, and remember its size, a hash of its pixels, and what is wrong with it."""

import hashlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Dataset

from scfs.data.decode import Fault, Unreadable
from scfs.data.loader import load
from scfs.data.sources import Source
from scfs.data.unreadable import reading

BATCH = 16  # images that a worker sends at a time
DIGEST = 16  # bytes of the hash of an image: two images in 2^64 may agree by chance
BLANK = bytes(DIGEST)


class Checked(NamedTuple):
    """One image: its size and the hash of its pixels or, if it cannot be read, why."""

    number: int  # its index in the source
    size: tuple[int, int]  # width, height; 0 if it cannot be read
    digest: bytes
    fault: Fault | None = None
    reason: str = ""


class Scan(NamedTuple):
    """All images of a source, in its order."""

    sizes: NDArray[np.int32]  # (images, 2) width height; 0 where unreadable
    digests: NDArray[np.bytes_]  # (images,) of the pixels
    unreadable: dict[int, tuple[Fault, str]]  # by index

    @property
    def readable(self) -> NDArray[np.int64]:
        """The indices of the images that can be read."""
        return np.flatnonzero(self.sizes[:, 0])

    def duplicates(self) -> dict[int, list[int]]:
        """The images with the same pixels as an earlier one, by the index of the first."""
        groups: dict[bytes, list[int]] = {}
        members = self.readable
        _, inverse, counts = np.unique(self.digests[members], return_inverse=True, return_counts=True)
        for index in members[counts[inverse] > 1].tolist():
            groups.setdefault(self.digests[index].item(), []).append(index)
        return {first: others for first, *others in groups.values()}


class CheckedImages(Dataset[Checked]):
    """Every image of a source, decoded and measured."""

    def __init__(self, source: Source):
        self.source = source

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: int) -> Checked:
        try:
            with reading(self.source, index):
                image = self.source.image(index)
                pixels = hashlib.blake2b(repr(image.size).encode(), digest_size=DIGEST)
                pixels.update(image.tobytes())
                return Checked(index, image.size, pixels.digest())
        except Unreadable as error:
            return Checked(index, (0, 0), BLANK, error.fault, error.reason)


def scan(source: Source, *, workers: int, on_images: Callable[[int], object]) -> Scan:
    """Check every image; `on_images` is called with the number of those that have been checked since the last call."""
    sizes, hashes = np.zeros((len(source), 2), np.int32), np.zeros((len(source), DIGEST), np.uint8)
    unreadable: dict[int, tuple[Fault, str]] = {}
    batches: Iterator[list[Checked]] = load(
        CheckedImages(source), workers=workers, pin=False, batch_size=BATCH, collate_fn=list
    )
    for batch in batches:
        for checked in batch:
            sizes[checked.number] = checked.size
            hashes[checked.number] = np.frombuffer(checked.digest, np.uint8)
            if checked.fault is not None:
                unreadable[checked.number] = checked.fault, checked.reason
        on_images(len(batch))
    return Scan(sizes, hashes.view(f"V{DIGEST}")[:, 0], unreadable)
