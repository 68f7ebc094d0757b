import difflib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from scfs.data.annotations import Objects
from scfs.data.archives import COMPRESSED, PARQUET, TAR, archives_in, expand, is_archive, is_pattern, split_files
from scfs.data.coco import open_annotated_coco
from scfs.data.decode import MAX_PIXELS, SUFFIXES
from scfs.data.files import read_file, read_folder
from scfs.data.lists import read_list, read_names
from scfs.data.parquet import open_parquet
from scfs.data.public import PUBLIC
from scfs.data.scene_source import SceneSource
from scfs.data.segmentation import LabelMap, PaintedSource, open_segmented_coco, open_segmented_voc
from scfs.data.selection import choose_classes, every_fifth
from scfs.data.shards import open_shards
from scfs.data.splits import SPLIT_WORDS, split_folders
from scfs.data.voc import open_annotated_voc
from scfs.errors import UserError

ANNOTATED = {"voc": open_annotated_voc, "coco": open_annotated_coco}
SEGMENTED: dict[str, Callable[..., tuple[Any, Any]]] = {"voc": open_segmented_voc, "coco": open_segmented_coco}


class Source(Protocol):
    """A sequence of RGB images, with labels if there are classes."""

    classes: tuple[str, ...]  # empty if the images have no labels

    def __len__(self) -> int: ...

    def image(self, index: int) -> Image.Image:
        """The image as RGB; `decode.Unreadable` if it is damaged or missing."""

    def label(self, index: int) -> int:
        """The image's class, as an index in `classes`."""

    def name(self, index: int) -> str:
        """The image's name in logs: its path, or archive and member."""


class AnnotatedSource(Source, Protocol):
    """A source that also knows which objects are in its images."""

    object_classes: tuple[str, ...]
    category_ids: tuple[int, ...]  # of the classes, in the annotation file; COCO's are not consecutive
    has_masks: bool
    notes: tuple[str, ...]  # for the user: which annotations are left out or changed

    def objects(self, index: int) -> Objects:
        """The objects in the image, N of them; there may be none."""

    def masks(self, index: int) -> NDArray[np.bool_] | None:
        """Their masks (N, H, W), decoded on each call; None if the source has none."""

    def image_size(self, index: int) -> tuple[int, int]:
        """Width and height, without reading the image."""

    def image_id(self, index: int) -> int:
        """The image's id in the annotation file, as COCO's evaluation expects it; elsewhere its index."""


class SegmentedSource(Source, Protocol):
    """A source that knows the class of every pixel. Its `classes` are those of pixels; the first is background."""

    notes: tuple[str, ...]  # for the user: which annotations are left out or changed

    def label_map(self, index: int) -> LabelMap:
        """The classes (H, W) of the pixels, as indices in `classes`; 255 is void. `decode.Unreadable` if damaged."""


def open_train(source: str, *, classes: str = "", max_pixels: int = MAX_PIXELS) -> Source:
    """The images to pre-train on: those of a source's train split, or all if it has none.

    `classes` is the path of a class list: only these classes, in its order.
    """
    train, _ = _open(source, with_val=False, max_pixels=max_pixels)
    if not classes:
        return train
    return choose_classes(train, read_names(Path(classes).expanduser()), origin=classes)


def open_all(source: str, *, max_pixels: int = MAX_PIXELS) -> Source:
    """The images to apply a network to: all below a folder, also in its `train` and `val`, or a single image file.

    Of any other source, its train split.
    """
    path = Path(source).expanduser()
    if path.is_dir() and not archives_in(path):
        return read_folder(path, max_pixels=max_pixels)
    if path.is_file() and path.suffix.lower() in SUFFIXES:
        return read_file(path, max_pixels=max_pixels)
    return open_train(source, max_pixels=max_pixels)


def open_labelled(source: str, *, classes: str = "", max_pixels: int = MAX_PIXELS) -> tuple[Source, Source]:
    """Labelled images for training and for evaluation, with the same classes.

    Without a val split, every fifth image of each class is for evaluation and the others are for training.
    """
    train, val = _open(source, with_val=True, max_pixels=max_pixels)
    if not train.classes:
        raise UserError(
            f"The images under {source} have no labels: evaluation needs class folders without images beside them, or "
            "labels in a list, in shards or in parquet files."
        )
    if classes:
        names = read_names(Path(classes).expanduser())
        train = choose_classes(train, names, origin=classes)
        val = val if val is None else choose_classes(val, names, origin=classes)
    if {name.lower() for name in train.classes} <= SPLIT_WORDS:
        first = train.classes[0]
        raise UserError(f"{source} has a folder {first} but no train beside it; add one, or give {source}/{first}.")
    if len(train.classes) == 1 and (val is None or val.classes == train.classes):
        raise UserError(
            f"All images under {source} are of one class ('{train.classes[0]}'), so that any network would score "
            "100 %; give two or more classes."
        )
    if val is None:
        return every_fifth(train)
    if train.classes != val.classes:
        unmatched = sorted(set(train.classes) ^ set(val.classes))
        raise UserError(
            f"The classes of the train and val images of {source} differ ({unmatched[0]!r} is in only one of them); "
            "give both the same class folders."
        )
    return train, val


def has_objects(source: str) -> bool:
    """Whether the images of a source come with boxes, so that `open_annotated` opens it."""
    kind, colon, _ = source.partition(":")
    return kind == "scenes" or (bool(colon) and kind in ANNOTATED)


def open_annotated(source: str, *, max_pixels: int = MAX_PIXELS) -> tuple[AnnotatedSource, AnnotatedSource]:
    """Images with boxes and perhaps masks, for training and for evaluation."""
    if (sizes := _scene_sizes(source)) is not None:
        return SceneSource("train", sizes[0]), SceneSource("val", sizes[1])
    kind, colon, folder = source.partition(":")
    if not colon or kind not in ANNOTATED:
        raise UserError(f"'{source}' has no boxes or masks; give scenes, voc:FOLDER or coco:FOLDER.")
    return ANNOTATED[kind](_public_folder(kind, folder), max_pixels=max_pixels)


def open_segmented(source: str, *, max_pixels: int = MAX_PIXELS) -> tuple[SegmentedSource, SegmentedSource]:
    """Images with label maps, for training and for evaluation, with the same classes."""
    if not is_segmented(source):
        raise UserError(f"'{source}' has no label maps; give scenes, voc:FOLDER or coco:FOLDER.")
    if _scene_sizes(source) is not None:
        train, val = open_annotated(source)
        return PaintedSource(train, origin=source), PaintedSource(val, origin=source)
    kind, _, folder = source.partition(":")
    return SEGMENTED[kind](_public_folder(kind, folder), max_pixels=max_pixels)


def is_segmented(source: str) -> bool:
    """Whether a source, by its kind, has label maps."""
    kind, colon, _ = source.partition(":")
    return _scene_sizes(source) is not None or (bool(colon) and kind in SEGMENTED)


def _open(source: str, *, with_val: bool, max_pixels: int) -> tuple[Source, Source | None]:
    """The train images of a source, and its val images if requested and available."""
    if not source:
        raise UserError("data.source is not set; give a folder of images or 'scenes'.")
    if (sizes := _scene_sizes(source)) is not None:
        return SceneSource("train", sizes[0]), SceneSource("val", sizes[1])
    kind, colon, folder = source.partition(":")
    if colon and kind in PUBLIC:
        return PUBLIC[kind](_public_folder(kind, folder), with_val=with_val, max_pixels=max_pixels)
    path = Path(source).expanduser()
    if path.is_dir():
        archives = archives_in(path)
    elif path.suffix.lower() == ".txt":
        return read_list(path, max_pixels=max_pixels), None
    elif "://" not in source and (is_archive(source) or is_pattern(source)):
        archives = expand(source)
    else:
        raise _unknown(source)
    if archives:
        return _open_archives(archives, with_val=with_val, max_pixels=max_pixels)
    return _open_folder(path, with_val=with_val, max_pixels=max_pixels)


def _open_folder(root: Path, *, with_val: bool, max_pixels: int) -> tuple[Source, Source | None]:
    """The train and val images of a folder if it has folders for them; otherwise all of it."""
    folders = split_folders(root)
    train = read_folder(folders.train, max_pixels=max_pixels)
    val = read_folder(folders.val, max_pixels=max_pixels) if with_val and folders.val is not None else None
    return train, val


def _open_archives(paths: list[str], *, with_val: bool, max_pixels: int) -> tuple[Source, Source | None]:
    for path in paths:
        if path.lower().endswith(COMPRESSED):
            raise UserError(f"Shard {path} is compressed; unpack it to a plain .tar, which allows random access.")
    endings = {Path(path).suffix.lower() for path in paths}
    if endings not in ({TAR}, {PARQUET}):
        raise UserError(
            f"{paths[0]} and the files with it are not all .tar or all .parquet files; name one kind, or give the "
            "folder of the images."
        )
    train, val = split_files(paths)
    opener = open_shards if endings == {TAR} else open_parquet
    return opener(train, val if with_val else [], max_pixels=max_pixels)


def _public_folder(kind: str, name: str) -> Path:
    if not name:
        raise UserError(f"'{kind}:' has no folder; write {kind}:FOLDER.")
    if not (folder := Path(name).expanduser()).is_dir():
        raise UserError(f"No folder at {folder}; write {kind}:FOLDER with the folder of the data set.")
    return folder


def _unknown(source: str) -> UserError:
    if "://" in source:
        return UserError(f"{source} is not on this machine; download it and give its folder.")
    kind, colon, folder = source.partition(":")
    if colon and (nearest := difflib.get_close_matches(kind, [*PUBLIC, "scenes"], n=1)):
        return UserError(f"'{kind}' is not a data set that scfs knows; did you mean '{nearest[0]}:{folder}'?")
    if Path(source).expanduser().is_file():
        return UserError(f"{source} is not a data source; give a folder, a .txt list, .tar shards or .parquet files.")
    return UserError(f"No folder at {source}; give a folder of images, another data source or 'scenes'.")


def _scene_sizes(name: str) -> tuple[int, int] | None:
    """(train, val) sizes of `scenes` or `scenes:TRAIN,VAL`; None for anything else."""
    if name == "scenes":
        return 5000, 1000
    if not name.startswith("scenes:"):
        return None
    if (match := re.fullmatch(r"scenes:([1-9]\d*),([1-9]\d*)", name)) is None:
        raise UserError(
            f"'{name}' is not a data source; write scenes:TRAIN,VAL with two sizes, such as scenes:500,100."
        )
    return int(match[1]), int(match[2])
