"""Label maps: the class of every pixel, painted from the masks of objects or read from VOC's files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from scfs.data.coco import open_annotated_coco
from scfs.data.decode import Unreadable, decode_indices
from scfs.data.files import NO_LABELS, FileSource
from scfs.data.lists import list_files
from scfs.data.paths import Files
from scfs.data.source_repr import SourceRepr
from scfs.data.voc import CLASSES, SEGMENTATION, Member, split_members
from scfs.errors import UserError

if TYPE_CHECKING:
    from scfs.data.annotations import Objects
    from scfs.data.sources import AnnotatedSource, SegmentedSource

# N objects of an image, H W height and width of the image

LabelMap = NDArray[np.uint8]  # (H, W)
BACKGROUND, VOID = 0, 255  # in a label map; void is neither trained on nor scored


class PaintedSource(SourceRepr):
    """The images of an annotated source with label maps, which are painted from the masks of the objects."""

    def __init__(self, source: AnnotatedSource, *, origin: str):
        if not source.has_masks:
            raise UserError(f"The objects of {origin} have no masks to paint label maps from; give other annotations.")
        self.classes = ("background", *source.object_classes)
        if len(self.classes) > VOID:
            raise UserError(f"{origin} has {len(source.object_classes)} classes; label maps have at most {VOID - 1}.")
        self.source, self.notes = source, source.notes

    def __len__(self) -> int:
        return len(self.source)

    def image(self, index: int) -> Image.Image:
        """The image as RGB."""
        return self.source.image(index)

    def label(self, index: int) -> int:  # noqa: ARG002
        """-1: pixels have classes, whole images have none."""
        return -1

    def name(self, index: int) -> str:
        """The image's name in its source."""
        return self.source.name(index)

    def label_map(self, index: int) -> LabelMap:
        """The classes of the pixels."""
        masks = self.source.masks(index)
        assert masks is not None
        return paint(masks, self.source.objects(index))


def paint(masks: NDArray[np.bool_], objects: Objects) -> LabelMap:
    """A label map of objects with masks (N, H, W), larger ones first so that smaller ones stay visible.

    Crowds are void. Labels start at 1: 0 is the background.
    """
    painted = np.full(masks.shape[1:], BACKGROUND, np.uint8)
    for i in np.argsort(-masks.sum(axis=(1, 2)), kind="stable").tolist():
        painted[masks[i]] = VOID if objects.crowd[i] else objects.labels[i] + 1
    return painted


class SegmentedFiles(FileSource):
    """Image files, each with a file whose palette indices are the classes of its pixels."""

    notes: tuple[str, ...] = ()

    def __init__(self, files: Files, maps: Files, classes: tuple[str, ...], *, max_pixels: int):
        super().__init__(files, NO_LABELS, classes, max_pixels=max_pixels)
        self.maps = maps

    def label(self, index: int) -> int:  # noqa: ARG002
        """-1: pixels have classes, whole images have none."""
        return -1

    def label_map(self, index: int) -> LabelMap:
        """The classes of the pixels, if all of them are known."""
        path = self.maps.path(index)
        labels = decode_indices(path, max_pixels=self.max_pixels)
        unknown = labels[(labels >= len(self.classes)) & (labels != VOID)]
        if len(unknown):
            last = len(self.classes) - 1
            raise Unreadable(path, f"it has class {unknown[0]}; classes are 0 to {last}, and {VOID} is void")
        return labels


def open_segmented_coco(root: Path, *, max_pixels: int) -> tuple[PaintedSource, PaintedSource]:
    """The images of train2017 and val2017 with label maps."""
    train, val = open_annotated_coco(root, max_pixels=max_pixels)
    return PaintedSource(train, origin=f"{root}, train2017,"), PaintedSource(val, origin=f"{root}, val2017,")


def open_segmented_voc(root: Path, *, max_pixels: int) -> tuple[SegmentedFiles, SegmentedFiles]:
    """The images of PASCAL VOC that have label maps, split as those with boxes are (`open_annotated_voc`)."""
    train, val = split_members(root, SEGMENTATION)
    return _read_voc(root, train, max_pixels), _read_voc(root, val, max_pixels)


def _read_voc(root: Path, members: list[Member], max_pixels: int) -> SegmentedFiles:
    paths = [os.fsencode(os.path.relpath(member.truth(SEGMENTATION), root)) for member in members]
    files, maps = (
        list_files(str(root), listed, origin="ImageSets/Segmentation")
        for listed in ([member.below(root) for member in members], paths)
    )
    return SegmentedFiles(files, maps, ("background", *CLASSES), max_pixels=max_pixels)


def read_segmented(source: SegmentedSource, index: int) -> tuple[Image.Image, LabelMap]:
    """An image and its label map, which must have the same size; `Unreadable` if one of them cannot be read."""
    image, label_map = source.image(index), source.label_map(index)
    height, width = label_map.shape
    if image.size != (width, height):
        sizes = f"it is {image.width} x {image.height} pixels and its label map is {width} x {height}"
        raise Unreadable(source.name(index), sizes)
    return image, label_map
