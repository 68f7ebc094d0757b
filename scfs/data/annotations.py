"""Objects in images: boxes, classes and masks, beside the image and its label.

The objects of all images are in a few arrays, which loader processes share; each would copy a list of records.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from scfs.data.decode import Unreadable
from scfs.data.files import NO_LABELS, FileSource
from scfs.data.masks import NOTHING, Segments
from scfs.data.paths import Files

if TYPE_CHECKING:
    from scfs.data.sources import AnnotatedSource

# N objects of an image, M objects of all images, H W height and width of the image


@dataclass(frozen=True)
class Objects:
    """The objects of one image, in the order of its annotation file."""

    boxes: NDArray[np.float32]  # (N, 4) x0 y0 x1 y1 in pixels: 0 is the left or top edge, W or H the right or bottom
    labels: NDArray[np.int64]  # (N,) indices in `object_classes`
    crowd: NDArray[np.bool_]  # (N,) a group, not one object: COCO neither trains on it nor counts it
    difficult: NDArray[np.bool_]  # (N,) VOC does not count it
    areas: NDArray[np.float32]  # (N,) of the mask, or of the box where there is none
    ids: NDArray[np.int64]  # (N,) of the annotations, unique in a source

    def __len__(self) -> int:
        return len(self.boxes)


class Columns(NamedTuple):
    """Objects as read, in the order of the file."""

    images: NDArray[np.int64]  # (M,) index of the image; -1 where it is unknown
    boxes: NDArray[np.float64]  # (M, 4) x0 y0 x1 y1, not yet clipped
    labels: NDArray[np.int64]  # (M,)
    crowd: NDArray[np.bool_]  # (M,)
    difficult: NDArray[np.bool_]  # (M,)
    areas: NDArray[np.float64]  # (M,) NaN where the file gives none
    ids: NDArray[np.int64]  # (M,)


class ObjectTable(NamedTuple):
    """The objects of all images, image by image."""

    sizes: NDArray[np.int32]  # (images, 2) width height
    starts: NDArray[np.int64]  # (images + 1,) first object of each image
    objects: Objects  # (M,) each
    rows: NDArray[np.int64]  # (M,) in `segments`
    segments: Segments | None

    def of(self, image: int) -> Objects:
        """The objects of one image."""
        rows, objects = slice(self.starts[image], self.starts[image + 1]), self.objects
        return Objects(
            objects.boxes[rows],
            objects.labels[rows],
            objects.crowd[rows],
            objects.difficult[rows],
            objects.areas[rows],
            objects.ids[rows],
        )

    def masks(self, image: int) -> NDArray[np.bool_] | None:
        """The masks (N, H, W), decoded on each call; None if the annotations have none."""
        if self.segments is None:
            return None
        width, height = map(int, self.sizes[image])
        rows = self.rows[self.starts[image] : self.starts[image + 1]].tolist()
        masks = [self.segments.mask(row, width, height) for row in rows]
        return np.stack(masks) if masks else np.zeros((0, height, width), np.bool_)


Problem = tuple[str, NDArray[np.bool_]]  # a description, and the objects it applies to (M,)


def tabulate(
    columns: Columns,
    sizes: NDArray[np.int32],
    segments: Segments | None,
    problems: list[Problem],
    *,
    name: Callable[[int], str],
) -> tuple[ObjectTable, tuple[str, ...]]:
    """Build the table of objects as read, with a note about each kind of object that is left out or changed.

    Boxes are clipped to their image. Objects in `problems`, of unknown images, with an empty box or, where others have
    one, without a usable segmentation are left out. `name` gives the name of the object in a row.
    """
    known = columns.images >= 0
    limits = np.where(known[:, None], sizes[columns.images], 0) if len(sizes) else np.zeros((len(known), 2), np.int32)
    boxes = columns.boxes.clip(0, np.concatenate([limits, limits], axis=1))
    clipped = known & (np.abs(boxes - columns.boxes).max(axis=1, initial=0) > 1)  # less is a rounding error
    empty = known & (boxes[:, 2:] <= boxes[:, :2]).any(axis=1)
    problems = [("of an image that is not listed", ~known), ("with an empty box", empty), *problems]
    if segments is not None and (segments.kinds != NOTHING).any():
        problems.append(("without a segmentation where others have one", segments.kinds == NOTHING))
    else:
        segments = None
    kept, notes = np.ones(len(known), np.bool_), []
    for text, affected in problems:
        notes += _note("Left out {} " + text, affected & kept, name)
        kept &= ~affected
    notes += _note("Clipped the boxes of {} to the image", clipped & kept, name)
    return _sorted(columns._replace(boxes=boxes), sizes, segments, kept), tuple(notes)


def _note(text: str, affected: NDArray[np.bool_], name: Callable[[int], str]) -> list[str]:
    rows = np.flatnonzero(affected)
    if not len(rows):
        return []
    count = f"{len(rows)} {'object' if len(rows) == 1 else 'objects'}"
    return [f"{text.format(count)} (the first: {name(int(rows[0]))})."]


def _sorted(
    columns: Columns, sizes: NDArray[np.int32], segments: Segments | None, kept: NDArray[np.bool_]
) -> ObjectTable:
    rows = np.flatnonzero(kept)
    rows = rows[np.argsort(columns.images[rows], kind="stable")]
    boxes = columns.boxes[rows]
    box_areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    areas = columns.areas[rows]
    objects = Objects(
        boxes.astype(np.float32),
        columns.labels[rows],
        columns.crowd[rows],
        columns.difficult[rows],
        np.where(np.isnan(areas), box_areas, areas).astype(np.float32),
        columns.ids[rows],
    )
    starts = np.searchsorted(columns.images[rows], np.arange(len(sizes) + 1))
    return ObjectTable(sizes, starts, objects, rows, segments)


class AnnotatedFiles(FileSource):
    """Image files with objects and without labels."""

    def __init__(
        self,
        files: Files,
        table: ObjectTable,
        object_classes: tuple[str, ...],
        *,
        image_ids: NDArray[np.int64],
        category_ids: tuple[int, ...],
        notes: tuple[str, ...],
        max_pixels: int,
    ):
        super().__init__(files, NO_LABELS, (), max_pixels=max_pixels)
        self.table, self.object_classes, self.image_ids = table, object_classes, image_ids
        self.category_ids, self.notes, self.has_masks = category_ids, notes, table.segments is not None

    def image(self, index: int) -> Image.Image:
        """The decoded file, if its size is that of its annotations."""
        image = super().image(index)
        if image.size != self.image_size(index):
            sizes = [f"{width} x {height}" for width, height in (image.size, self.image_size(index))]
            raise Unreadable(self.name(index), f"it is {sizes[0]} pixels and its annotations are for {sizes[1]}")
        return image

    def objects(self, index: int) -> Objects:
        """The objects in the image."""
        return self.table.of(index)

    def masks(self, index: int) -> NDArray[np.bool_] | None:
        """Their masks (N, H, W)."""
        return self.table.masks(index)

    def image_size(self, index: int) -> tuple[int, int]:
        """Width and height."""
        width, height = self.table.sizes[index]
        return int(width), int(height)

    def image_id(self, index: int) -> int:
        """The image's id in the annotation file."""
        return int(self.image_ids[index])


class AnnotatedSubset:
    """Some images of an annotated source."""

    def __init__(self, source: AnnotatedSource, members: Sequence[int] | NDArray[np.int64]):
        self.source, self.members = source, members
        self.classes, self.object_classes = source.classes, source.object_classes
        self.category_ids, self.has_masks, self.notes = source.category_ids, source.has_masks, source.notes

    def __len__(self) -> int:
        return len(self.members)

    def image(self, index: int) -> Image.Image:
        return self.source.image(int(self.members[index]))

    def label(self, index: int) -> int:
        return self.source.label(int(self.members[index]))

    def name(self, index: int) -> str:
        return self.source.name(int(self.members[index]))

    def objects(self, index: int) -> Objects:
        return self.source.objects(int(self.members[index]))

    def masks(self, index: int) -> NDArray[np.bool_] | None:
        return self.source.masks(int(self.members[index]))

    def image_size(self, index: int) -> tuple[int, int]:
        return self.source.image_size(int(self.members[index]))

    def image_id(self, index: int) -> int:
        return self.source.image_id(int(self.members[index]))


def with_objects(source: AnnotatedSource) -> AnnotatedSubset:
    """The images with at least one object that is not a crowd: those that a detector can be trained on."""
    useful = np.fromiter((not source.objects(i).crowd.all() for i in range(len(source))), np.bool_, len(source))
    return AnnotatedSubset(source, np.flatnonzero(useful))
