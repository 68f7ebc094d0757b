"""Public fine-grained data sets in their published layouts. Nothing is downloaded."""

import os
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from scfs.data.files import FileSource
from scfs.data.lists import list_files
from scfs.errors import UserError
from scfs.extras import check_extra
from scfs.regular_file import check_regular, read_regular

MAX_BYTES = 2**28  # of a list of images
Pair = tuple[FileSource, FileSource | None]


def _as_published(opener: Callable[..., Pair]) -> Callable[..., Pair]:
    """The same opener, with a `UserError` for a list that is not as published."""

    @wraps(opener)
    def checked(root: Path, **options: Any) -> Pair:
        try:
            return opener(root, **options)
        except UserError:
            raise
        except (ValueError, IndexError, KeyError) as error:  # in text, columns and numbers
            raise UserError(f"A list of {root} is not as published ({error}); unpack the data set again.") from None

    return checked


@_as_published
def open_cub(root: Path, *, with_val: bool, max_pixels: int) -> Pair:
    """CUB-200-2011: its train and test images, by train_test_split.txt."""
    base = _base(root, "CUB_200_2011", "images.txt")
    paths, labels, is_train = (
        dict(_pairs(base / name)) for name in ("images.txt", "image_class_labels.txt", "train_test_split.txt")
    )
    classes = tuple(name for _, name in _pairs(base / "classes.txt"))
    if not paths.keys() == labels.keys() == is_train.keys():
        raise UserError(f"The lists of {base} do not name the same images; unpack it again.")

    def part(flag: str) -> FileSource:
        chosen = [number for number in paths if is_train[number] == flag]
        class_indices = [int(labels[number]) - 1 for number in chosen]
        return _source(base / "images", [paths[number] for number in chosen], class_indices, classes, max_pixels)

    return part("1"), part("0") if with_val else None


@_as_published
def open_aircraft(root: Path, *, with_val: bool, max_pixels: int) -> Pair:
    """FGVC Aircraft with its variants as classes: its trainval and test images."""
    base = _base(root, "fgvc-aircraft-2013b/data", "variants.txt")
    classes = tuple(_lines(base / "variants.txt"))
    class_index = {name: i for i, name in enumerate(classes)}

    def part(split: str) -> FileSource:
        lines = _pairs(base / f"images_variant_{split}.txt")
        for _, variant in lines:
            if variant not in class_index:
                raise UserError(f"{base}/images_variant_{split}.txt names '{variant}', which variants.txt does not.")
        names = [f"{number}.jpg" for number, _ in lines]
        return _source(base / "images", names, [class_index[variant] for _, variant in lines], classes, max_pixels)

    return part("trainval"), part("test") if with_val else None


@_as_published
def open_pets(root: Path, *, with_val: bool, max_pixels: int) -> Pair:
    """Oxford-IIIT Pets with its breeds as classes: its trainval and test images."""
    base = _base(root, "oxford-iiit-pet", "annotations/trainval.txt")
    rows = {
        split: [line.split() for line in _lines(base / "annotations" / f"{split}.txt")]
        for split in ("trainval", "test")
    }
    named = {int(row[1]) - 1: row[0].rpartition("_")[0] for split in rows.values() for row in split}
    classes = tuple(named[i] for i in sorted(named))
    if sorted(named) != list(range(len(named))):
        raise UserError(f"The classes of {base / 'annotations'} are not numbered from 1; unpack it again.")

    def part(split: str) -> FileSource:
        names, labels = [f"{row[0]}.jpg" for row in rows[split]], [int(row[1]) - 1 for row in rows[split]]
        return _source(base / "images", names, labels, classes, max_pixels)

    return part("trainval"), part("test") if with_val else None


@_as_published
def open_cars(root: Path, *, with_val: bool, max_pixels: int) -> Pair:
    """Stanford Cars: its train and test images, by the annotations of its devkit."""
    base = _base(root, "stanford_cars", "devkit/cars_meta.mat")
    classes = tuple(str(name[0]) for name in _matlab(base / "devkit" / "cars_meta.mat")["class_names"][0])

    def part(folder: str, annotations: Path) -> FileSource:
        entries = _matlab(annotations)["annotations"][0]
        if "class" not in (entries.dtype.names or ()):
            raise UserError(f"{annotations} has no classes; the test labels are published separately, put them there.")
        names, labels = [str(e["fname"][0]) for e in entries], [int(e["class"][0, 0]) - 1 for e in entries]
        return _source(base / folder, names, labels, classes, max_pixels)

    train = part("cars_train", base / "devkit" / "cars_train_annos.mat")
    if not with_val:
        return train, None
    with_labels = [base / "cars_test_annos_withlabels.mat", base / "devkit" / "cars_test_annos_withlabels.mat"]
    found = [path for path in with_labels if path.is_file()]
    if not found:
        raise UserError(
            f"{base} has no cars_test_annos_withlabels.mat; the test labels are published separately, add them."
        )
    return train, part("cars_test", found[0])


def _base(root: Path, usual: str, marker: str) -> Path:
    """The folder with the marker file: the usual path below the root, its last part alone, or the root itself."""
    for base in (root / usual, root / PurePath(usual).name, root):
        if (base / marker).is_file():
            return base
    raise UserError(f"No {marker} under {root} or {root / usual}; give the folder of the unpacked data set.")


def _lines(path: Path) -> list[str]:
    try:
        lines = read_regular(path, limit=MAX_BYTES).decode("utf-8").splitlines()
    except OSError as error:
        raise UserError(f"Cannot read {path}: {error.strerror}; unpack the data set again.") from None
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def _pairs(path: Path) -> list[tuple[str, str]]:
    """The first word of every line, and the rest of it."""
    pairs = [line.partition(" ")[::2] for line in _lines(path)]
    for first, rest in pairs:
        if not rest:
            raise UserError(f"A line of {path} has only '{first}'; unpack the data set again.")
    return pairs


def _matlab(path: Path) -> dict[str, Any]:
    check_extra("cars", "Stanford Cars, whose labels are MATLAB files,")
    from scipy.io import loadmat

    try:
        check_regular(path)
        return dict(loadmat(path))
    except Exception as error:  # scipy has its own exceptions for damaged files
        raise UserError(f"Cannot read {path}: {error}; unpack the data set again.") from None


def _source(
    folder: Path, names: Sequence[str], labels: Sequence[int], classes: tuple[str, ...], max_pixels: int
) -> FileSource:
    for label in labels:
        if not 0 <= label < len(classes):
            raise UserError(f"The labels of {folder} exceed its {len(classes)} classes; unpack the data set again.")
    files = list_files(str(folder), [os.fsencode(name) for name in names], origin=f"the lists of {folder.parent}")
    return FileSource(files, np.array(labels, np.int32), classes, max_pixels=max_pixels)
