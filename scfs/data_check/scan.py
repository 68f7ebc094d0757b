"""Decode every image of a source once, and remember its size, a hash of its pixels, and what is wrong with it."""

import hashlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch.utils.data import Dataset

from scfs.data.decode import Fault, Unreadable
from scfs.data.loader import load
from scfs.data.sources import Source
from scfs.data.unreadable import reading

BATCH = 16  # images that a worker sends at a time
DIGEST = 16  # bytes of the hash of an image: two images in 2^64 may agree by chance
NO_DIGEST = bytes(DIGEST)
DARK = 16  # of 255: an image with nearly all its levels below is nearly black
NEARLY_ALL = 0.999  # of an image's levels


class Checked(NamedTuple):
    """One image: its size and the hash of its pixels or, if it cannot be read, why."""

    number: int  # its index in the source
    size: tuple[int, int]  # width, height; 0 if it cannot be read
    digest: bytes
    fault: Fault | None = None
    reason: str = ""
    blank: str = ""  # in what way it is


class Scan(NamedTuple):
    """All images of a source, in its order."""

    sizes: NDArray[np.int32]  # (images, 2) width height; 0 where unreadable
    digests: NDArray[np.bytes_]  # (images,) of the pixels
    unreadable: dict[int, tuple[Fault, str]]  # by index
    blank: dict[int, str]  # in what way, by index

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
                return Checked(index, image.size, pixels.digest(), blank=_blank(image))
        except Unreadable as error:
            return Checked(index, (0, 0), NO_DIGEST, error.fault, error.reason)


def _blank(image: Image.Image) -> str:
    """In what way an RGB image shows nothing; empty if it shows something."""
    levels = np.reshape(image.histogram(), (3, 256))
    if (np.count_nonzero(levels, axis=1) == 1).all():
        return "all pixels are of one colour"
    up_to = levels.sum(axis=0).cumsum()
    brightest = int(np.searchsorted(up_to, NEARLY_ALL * up_to[-1]))
    if brightest >= DARK:
        return ""
    return f"{100 * NEARLY_ALL:g} % of its levels are at most {brightest} of 255; rescale it if it has more than 8 bits"


def scan(source: Source, *, workers: int, on_images: Callable[[int], object]) -> Scan:
    """Check every image; `on_images` is called with the number of those that have been checked since the last call."""
    sizes, hashes = np.zeros((len(source), 2), np.int32), np.zeros((len(source), DIGEST), np.uint8)
    unreadable: dict[int, tuple[Fault, str]] = {}
    blank: dict[int, str] = {}
    batches: Iterator[list[Checked]] = load(
        CheckedImages(source), workers=workers, pin=False, batch_size=BATCH, collate_fn=list
    )
    for batch in batches:
        for checked in batch:
            sizes[checked.number] = checked.size
            hashes[checked.number] = np.frombuffer(checked.digest, np.uint8)
            if checked.fault is not None:
                unreadable[checked.number] = checked.fault, checked.reason
            if checked.blank:
                blank[checked.number] = checked.blank
        on_images(len(batch))
    return Scan(sizes, hashes.view(f"V{DIGEST}")[:, 0], unreadable, blank)
