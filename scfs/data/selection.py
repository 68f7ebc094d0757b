from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from scfs.data.counted import counted
from scfs.data.source_repr import SourceRepr
from scfs.errors import UserError

if TYPE_CHECKING:
    from scfs.data.sources import Source


class Subset(SourceRepr):
    """Some images of a source, perhaps with other labels."""

    def __init__(self, source: Source, members: NDArray[np.int64], labels: NDArray[np.int32], classes: tuple[str, ...]):
        self.source, self.members, self.labels, self.classes = source, members, labels, classes

    def __len__(self) -> int:
        return len(self.members)

    def image(self, index: int) -> Image.Image:
        """The image as RGB."""
        return self.source.image(int(self.members[index]))

    def label(self, index: int) -> int:
        """The image's class, as an index in `classes`."""
        return int(self.labels[index])

    def name(self, index: int) -> str:
        """The image's name in the whole source."""
        return self.source.name(int(self.members[index]))


def choose_classes(source: Source, names: Sequence[str], *, origin: str) -> Subset:
    """The images of the named classes, with labels as indices in `names`. `origin` is where they are listed."""
    if not source.classes:
        raise UserError(f"The classes of {origin} cannot be chosen: the images have no labels; omit data.classes.")
    class_index = {name: i for i, name in enumerate(names)}
    for name in names:
        if name not in source.classes:
            nearest = difflib.get_close_matches(name, source.classes, n=1, cutoff=0)
            raise UserError(
                f"{origin} names class '{name}', which the data does not have; did you mean '{nearest[0]}'?"
            )
    labels = np.array([class_index.get(name, -1) for name in source.classes], np.int32)[labels_of(source)]
    members = np.flatnonzero(labels >= 0)
    return Subset(source, members, labels[members], tuple(names))


def every_fifth(source: Source) -> tuple[Subset, Subset]:
    """A source split in two: without every fifth image of each class, and those images."""
    labels = labels_of(source)
    order = np.argsort(labels, kind="stable")
    starts = np.searchsorted(labels[order], labels[order])  # where each image's class begins
    fifth = np.zeros(len(labels), np.bool_)
    fifth[order] = (np.arange(len(labels)) - starts) % 5 == 4
    if not fifth.any():
        raise UserError("Too few images to score: each class needs at least 5, or give train and val folders.")
    return split_by(source, fifth)


def split_by(source: Source, chosen: NDArray[np.bool_]) -> tuple[Subset, Subset]:
    """The images that are not chosen, and those that are."""
    labels = labels_of(source)
    rest, some = (Subset(source, part, labels[part], source.classes) for part in map(np.flatnonzero, (~chosen, chosen)))
    return rest, some


def class_balanced(source: Source, fraction: float, seed: int) -> Subset:
    """A fraction of the images of each class, at least one, drawn with the seed."""
    labels, chosen = labels_of(source), []
    random = np.random.default_rng(seed)
    for label, name in enumerate(source.classes):
        members = np.flatnonzero(labels == label)
        if len(members) < 2:
            raise UserError(
                f"Class '{name}' has {counted(len(members), 'image')}, of which no fraction can be drawn; add some."
            )
        chosen.append(random.permutation(members)[: max(1, round(fraction * len(members)))])
    members = np.sort(np.concatenate(chosen))
    return Subset(source, members, labels[members], source.classes)


def named_in(source: Source, names: Sequence[str], *, origin: str) -> Subset:
    """The images listed by file name, as in SimCLRv2's published lists, or by CLASS/NAME.

    `origin` is the list.
    """
    parts = 2 if any("/" in name for name in names) else 1

    def key(name: str) -> str:
        return "/".join(PurePath(name).parts[-parts:])

    index_of: dict[str, int] = {}
    duplicates: set[str] = set()
    for i in range(len(source)):
        if index_of.setdefault(key(source.name(i)), i) != i:
            duplicates.add(key(source.name(i)))
    for name in names:
        if key(name) in duplicates:
            raise UserError(f"{origin} names '{name}', which several images are called; write CLASS/NAME instead.")
    if absent := [name for name in names if key(name) not in index_of]:
        raise UserError(
            f"{len(absent)} of the {len(names)} images that {origin} names are not among the training images, the "
            f"first '{absent[0]}'; give the list of this data set."
        )
    members = np.array([index_of[key(name)] for name in names])
    return Subset(source, members, labels_of(source)[members], source.classes)


def hold_out(source: Source, fraction: float, seed: int) -> NDArray[np.bool_]:
    """Which images to hold out: about that fraction of each class, at least one and never all, drawn with the seed."""
    labels, held = labels_of(source), np.zeros(len(source), np.bool_)
    random = np.random.default_rng(seed)
    for label, name in enumerate(source.classes):
        members = np.flatnonzero(labels == label)
        if len(members) == 1:
            raise UserError(
                f"Class '{name}' has a single labelled image, and one of each class must be held out to choose "
                "settings on; label more, or, for finetune, give one of --rates and one of --weight_decays."
            )
        count = min(max(1, round(fraction * len(members))), len(members) - 1)
        held[random.permutation(members)[: max(0, count)]] = True
    return held


def labels_of(source: Source) -> NDArray[np.int32]:
    """All labels of a labelled source."""
    return np.fromiter((source.label(i) for i in range(len(source))), np.int32, len(source))
