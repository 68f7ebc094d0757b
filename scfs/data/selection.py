from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from scfs.errors import UserError

if TYPE_CHECKING:
    from scfs.data.sources import Source


class Subset:
    """Some images of a source, perhaps with other labels."""

    def __init__(self, source: Source, members: NDArray[np.int64], labels: NDArray[np.int32], classes: tuple[str, ...]):
        self.source, self.members, self.labels, self.classes = source, members, labels, classes

    def __len__(self) -> int:
        return len(self.members)

    def image(self, index: int) -> Image.Image:
        """The image as RGB."""
        return self.source.image(int(self.members[index]))

    def label(self, index: int) -> int:
        """The image's class, as a place in `classes`."""
        return int(self.labels[index])

    def name(self, index: int) -> str:
        """What the whole source calls it."""
        return self.source.name(int(self.members[index]))


def choose_classes(source: Source, wanted: Sequence[str], *, origin: str) -> Subset:
    """The images of some classes, whose labels become places in `wanted`. `origin` is what wanted them."""
    if not source.classes:
        raise UserError(f"The classes of {origin} cannot be chosen: the images have no labels; leave data.classes out.")
    place = {name: i for i, name in enumerate(wanted)}
    for name in wanted:
        if name not in source.classes:
            nearest = difflib.get_close_matches(name, source.classes, n=1, cutoff=0)
            raise UserError(f"{origin} names class '{name}', which the data does not have; is '{nearest[0]}' meant?")
    labels = np.array([place.get(name, -1) for name in source.classes], np.int32)[labels_of(source)]
    members = np.flatnonzero(labels >= 0)
    return Subset(source, members, labels[members], tuple(wanted))


def every_fifth(source: Source) -> tuple[Subset, Subset]:
    """A source without the fifth, tenth, ... image of each class, and those images."""
    labels = labels_of(source)
    order = np.argsort(labels, kind="stable")
    starts = np.searchsorted(labels[order], labels[order])  # where each image's class begins
    fifth = np.zeros(len(labels), np.bool_)
    fifth[order] = (np.arange(len(labels)) - starts) % 5 == 4
    if not fifth.any():
        raise UserError("Too few images to score: each class needs at least 5, or give train and val folders.")
    train, val = (Subset(source, part, labels[part], source.classes) for part in map(np.flatnonzero, (~fifth, fifth)))
    return train, val


def labels_of(source: Source) -> NDArray[np.int32]:
    """All labels of a labelled source."""
    return np.fromiter((source.label(i) for i in range(len(source))), np.int32, len(source))
