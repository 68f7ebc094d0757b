"""COCO as published: folders of images and `annotations/instances_*.json`."""

from __future__ import annotations

import os
from array import array
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scfs.data.annotations import AnnotatedFiles, Columns, Problem, tabulate
from scfs.data.files import NO_LABELS, FileSource, read_folder
from scfs.data.json_stream import stream_lists
from scfs.data.lists import list_files
from scfs.data.masks import BadSegmentation, SegmentsBuilder, compact
from scfs.errors import UserError


def open_coco(root: Path, *, with_val: bool, max_pixels: int) -> tuple[FileSource, None]:  # noqa: ARG001
    """The images of COCO's train2017, without labels."""
    return FileSource(read_folder(_images(root, "train2017")).files, NO_LABELS, (), max_pixels=max_pixels), None


def open_annotated_coco(root: Path, *, max_pixels: int) -> tuple[AnnotatedFiles, AnnotatedFiles]:
    """The images of train2017 and val2017 with their objects, in the order of image ids."""
    train, val = (_open_split(root, split, max_pixels) for split in ("train2017", "val2017"))
    if (train.object_classes, train.category_ids) != (val.object_classes, val.category_ids):
        raise UserError(f"The categories of train2017 and val2017 under {root} differ; take both from one release.")
    return train, val


def _images(root: Path, split: str) -> Path:
    inside = root.name == "train2017"  # the image folder itself was given
    tops = [root.parent] if inside else [root, root / "images"]
    for folder in (top / split for top in tops):
        if folder.is_dir():
            return folder
    raise UserError(f"No COCO under {root}; expected a folder {split} of images.")


def _open_split(root: Path, split: str, max_pixels: int) -> AnnotatedFiles:
    folder, name = _images(root, split), Path("annotations", f"instances_{split}.json")
    paths = [top / name for top in (root, *folder.parents[:2])]
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        raise UserError(f"No {name} under {root}; unpack COCO's annotations_trainval2017.zip there.")
    return read_coco(path, folder, max_pixels=max_pixels)


def read_coco(path: Path, folder: Path, *, max_pixels: int) -> AnnotatedFiles:
    """The images that an annotation file lists, in a folder, with their objects.

    Categories become labels in the order of their ids.
    """
    reader = _Reader(path)
    image_order, category_order = np.argsort(reader.image_ids), np.argsort(reader.category_ids)
    image_ids = np.array(reader.image_ids, np.int64)[image_order]
    category_ids = np.array(reader.category_ids, np.int64)[category_order]
    labels = _indices(compact(reader.categories), category_ids)
    if (labels < 0).any():
        row = int(np.argmax(labels < 0))
        raise UserError(
            f"Annotation {reader.ids[row]} in {path} has category {reader.categories[row]}, which the file does not "
            "list; repair it."
        )
    images = _indices(compact(reader.images), image_ids)
    sizes = np.array(reader.sizes, np.int32)[image_order]
    columns, problems = _columns(reader, images, labels), _problems(reader, sizes[images])
    table, notes = tabulate(
        columns, sizes, reader.segments.build(), problems, name=lambda row: f"annotation {columns.ids[row]}"
    )
    return AnnotatedFiles(
        list_files(str(folder), [reader.names[i] for i in image_order], origin=str(path)),
        table,
        tuple(reader.category_names[i] for i in category_order),
        image_ids=image_ids,
        category_ids=tuple(category_ids.tolist()),
        notes=tuple(f"{path}: {note}" for note in notes),
        max_pixels=max_pixels,
    )


def _columns(reader: _Reader, images: NDArray[np.int64], labels: NDArray[np.int64]) -> Columns:
    boxes = compact(reader.boxes).reshape(-1, 4)  # x y width height
    return Columns(
        images=images,
        boxes=np.concatenate([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], axis=1),
        labels=labels,
        crowd=compact(reader.crowd) != 0,
        difficult=np.zeros(len(labels), np.bool_),
        areas=compact(reader.areas),
        ids=compact(reader.ids),
    )


def _problems(reader: _Reader, sizes: NDArray[np.int32]) -> list[Problem]:
    """What is wrong with segmentations; `sizes` (M, 2) are those of the objects' images."""
    rle_sizes = compact(reader.rle_sizes).reshape(-1, 2)  # 0 where there is no RLE
    return [
        ("with a segmentation that is neither polygons nor RLE", compact(reader.bad) != 0),
        ("with RLE of a different size than the image", ((rle_sizes > 0) & (rle_sizes != sizes)).any(axis=1)),
    ]


def _indices(ids: NDArray[np.int64], known: NDArray[np.int64]) -> NDArray[np.int64]:
    """The indices of ids in a sorted array of known ones; -1 where unknown."""
    if not len(known):
        return np.full(len(ids), -1)
    found = np.searchsorted(known, ids).clip(max=len(known) - 1)
    return np.where(known[found] == ids, found, -1)


def _id(entry: Any) -> int:
    number = int(entry["id"])
    if not -(2**63) <= number < 2**63:
        raise ValueError("more than 64 bits")
    return number


class _Reader:
    """Reads an annotation file in one pass, whatever the order of its lists, into compact arrays."""

    def __init__(self, path: Path):
        self.image_ids, self.names, self.sizes = list[int](), list[bytes](), list[tuple[int, int]]()
        self.category_ids, self.category_names = list[int](), list[str]()
        self.ids, self.images, self.categories = array("q"), array("q"), array("q")
        self.boxes, self.areas, self.crowd = array("d"), array("d"), array("b")
        self.bad, self.rle_sizes, self.segments = array("b"), array("i"), SegmentsBuilder()
        adders = {"images": self._image, "categories": self._category, "annotations": self._annotation}
        for kind, entry in stream_lists(path, set(adders)):
            try:
                adders[kind](entry)
            except (KeyError, TypeError, ValueError, OverflowError):
                which = f"with id {entry['id']}" if isinstance(entry, dict) and "id" in entry else "without an id"
                raise UserError(
                    f"An entry of '{kind}' in {path}, the one {which}, is not in COCO's format; repair it."
                ) from None
        for kind, ids in (("images", self.image_ids), ("categories", self.category_ids)):
            if not ids:
                raise UserError(f"{path} lists no {kind}; give COCO's instances_*.json or a file in its format.")
            if len(set(ids)) < len(ids):
                raise UserError(f"{path} gives the same id to two of its {kind}; repair it.")

    def _image(self, entry: Any) -> None:
        width, height = int(entry["width"]), int(entry["height"])
        if min(width, height) <= 0 or max(width, height) >= 2**31:
            raise ValueError("empty, or larger than any image")
        self.image_ids.append(_id(entry))
        self.names.append(os.fsencode(entry["file_name"]))
        self.sizes.append((width, height))

    def _category(self, entry: Any) -> None:
        self.category_ids.append(_id(entry))
        self.category_names.append(str(entry["name"]))

    def _annotation(self, entry: Any) -> None:
        x, y, width, height = map(float, entry["bbox"])
        area = entry.get("area")
        if not np.isfinite(x + y + width + height):
            raise ValueError("not finite")
        ids = int(entry["id"]), int(entry["image_id"]), int(entry["category_id"])
        for column, value in zip((self.ids, self.images, self.categories), ids, strict=True):
            column.append(value)
        self.boxes.extend((x, y, width, height))
        self.areas.append(float("nan") if area is None else float(area))
        self.crowd.append(bool(entry.get("iscrowd", 0)))
        self.rle_sizes.extend(self._segmentation(entry.get("segmentation")))

    def _segmentation(self, segmentation: Any) -> tuple[int, int]:
        """Add a segmentation; returns the width and height of its RLE."""
        size = (0, 0)
        try:
            size = self.segments.add(segmentation)
            self.bad.append(0)
        except BadSegmentation:
            self.segments.add(None)
            self.bad.append(1)
        return size
