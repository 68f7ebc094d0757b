"""PASCAL VOC as published: `VOCdevkit/VOC2007` and other years."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import numpy as np
from PIL import Image

from scfs.data.annotations import AnnotatedFiles, Columns, tabulate
from scfs.data.files import NO_LABELS, FileSource
from scfs.data.lists import list_files
from scfs.errors import UserError

CLASSES = (
    *("aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow"),
    *("diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor"),
)
TRAINVAL = ("trainval", "train", "val")


def open_voc(root: Path, *, with_val: bool, max_pixels: int) -> tuple[FileSource, None]:  # noqa: ARG001
    """The trainval images of every year of PASCAL VOC, without labels."""
    years = _years(root)
    paths = [_image_path(root, Member(year, name)) for year in years for name in _trainval(year)]
    files = list_files(str(root), paths, origin=f"ImageSets/Main of {', '.join(map(str, years))}")
    return FileSource(files, NO_LABELS, (), max_pixels=max_pixels), None


def open_annotated_voc(root: Path, *, max_pixels: int) -> tuple[AnnotatedFiles, AnnotatedFiles]:
    """Images with their objects: trainval of every year for training, and the test images of 2007 for evaluation.

    If no year has test images with annotations, the train lists are for training and the val lists for evaluation.
    There are no masks: only some of the images have them.
    """
    years = _years(root)
    tests = [year for year in years if _has_test(year)]
    if tests:
        train = _members({year: _trainval(year) for year in years if year not in tests or _lists(year, *TRAINVAL)})
        val = _members({tests[0]: _lists(tests[0], "test")})
    else:
        train, val = (_members({year: _lists(year, split) for year in years}) for split in ("train", "val"))
    for split, members in (("train", train), ("val", val)):
        if not members:
            raise UserError(f"No {split} images in ImageSets/Main of {', '.join(map(str, years))}; unpack them again.")
    return _read(root, train, max_pixels), _read(root, val, max_pixels)


class Member(NamedTuple):
    """An image of a year."""

    year: Path
    name: str

    @property
    def annotation(self) -> Path:
        return self.year / "Annotations" / f"{self.name}.xml"


class VocObject(NamedTuple):
    """An object of an image, as in its annotation file."""

    image: int
    box: tuple[float, float, float, float]
    label: int
    difficult: bool


def _years(root: Path) -> list[Path]:
    if _is_voc(root):
        return [root]
    years = sorted(path for path in (*root.glob("VOC20*"), *root.glob("VOCdevkit/VOC20*")) if _is_voc(path))
    if not years:
        raise UserError(f"No PASCAL VOC under {root}; expected VOCdevkit/VOC2007 or another year with ImageSets/Main.")
    return years


def _is_voc(folder: Path) -> bool:
    return (folder / "ImageSets" / "Main").is_dir() and (folder / "JPEGImages").is_dir()


def _lists(year: Path, *splits: str) -> list[str]:
    """The names of the images of some splits, sorted; a missing list counts as empty."""
    paths = [year / "ImageSets" / "Main" / f"{split}.txt" for split in splits]
    return sorted({name for path in paths if path.is_file() for name in path.read_text().split()})


def _trainval(year: Path) -> list[str]:
    names = _lists(year, TRAINVAL[0]) or _lists(year, *TRAINVAL[1:])
    if not names:
        raise UserError(f"{year / 'ImageSets' / 'Main'} has no trainval.txt with images; unpack the data set again.")
    return names


def _has_test(year: Path) -> bool:
    """Whether a year has test images with annotations: those of 2012 were never published."""
    names = _lists(year, "test")
    return bool(names) and Member(year, names[0]).annotation.is_file()


def _members(names: dict[Path, list[str]]) -> list[Member]:
    """Every image once: later years repeat those of earlier years, except 2007's."""
    years = {name: year for year, listed in names.items() for name in listed}
    return [Member(year, name) for name, year in sorted(years.items(), key=lambda item: (item[1], item[0]))]


def _image_path(root: Path, member: Member) -> bytes:
    return os.fsencode(f"{os.path.relpath(member.year / 'JPEGImages', root)}/{member.name}.jpg")


def _read(root: Path, members: Sequence[Member], max_pixels: int) -> AnnotatedFiles:
    files = list_files(str(root), [_image_path(root, member) for member in members], origin="ImageSets/Main")
    sizes, objects = np.empty((len(members), 2), np.int32), list[VocObject]()
    for image, member in enumerate(members):
        tree = _parse(member.annotation)
        sizes[image] = _size(tree, files.path(image))
        objects += _objects(tree, image, member.annotation)
    columns = Columns(
        images=np.array([each.image for each in objects], np.int64),
        boxes=np.array([each.box for each in objects], np.float64).reshape(-1, 4),
        labels=np.array([each.label for each in objects], np.int64),
        crowd=np.zeros(len(objects), np.bool_),
        difficult=np.array([each.difficult for each in objects], np.bool_),
        areas=np.full(len(objects), np.nan),
        ids=np.arange(1, len(objects) + 1),
    )
    table, notes = tabulate(columns, sizes, None, [], name=lambda row: f"in {members[objects[row].image].annotation}")
    return AnnotatedFiles(
        files,
        table,
        CLASSES,
        image_ids=np.arange(len(members)),
        category_ids=tuple(range(1, len(CLASSES) + 1)),
        notes=tuple(f"{root}: {note}" for note in notes),
        max_pixels=max_pixels,
    )


def _parse(path: Path) -> ElementTree.Element:
    try:
        return ElementTree.fromstring(path.read_bytes())
    except OSError as error:
        raise UserError(f"Cannot read annotations {path}: {error.strerror}; unpack the data set again.") from None
    except (ElementTree.ParseError, LookupError, ValueError):  # bad XML or encoding
        raise UserError(f"{path} is not XML, or it is cut short; unpack the data set again.") from None


def _size(tree: ElementTree.Element, image: str) -> tuple[int, int]:
    """The image's size from the annotations or, if they have none, from its header."""
    try:
        width, height = (int(tree.findtext(f"size/{side}", "")) for side in ("width", "height"))
        if min(width, height) > 0:
            return width, height
    except ValueError:
        pass
    try:
        with Image.open(image) as file:
            return file.size
    except Exception:  # unreadable images are handled when they are loaded
        return 1, 1


def _objects(tree: ElementTree.Element, image: int, path: Path) -> list[VocObject]:
    """Objects in the order of the file. Parts of objects (heads, hands) are not objects."""
    found = []
    for each in tree.findall("object"):
        name = (each.findtext("name") or "").strip()
        if name not in CLASSES:
            raise UserError(f"{path} has an object of class '{name}', which is not one of VOC's 20; repair it.")
        try:
            x0, y0, x1, y1 = (float(each.findtext(f"bndbox/{side}", "")) for side in ("xmin", "ymin", "xmax", "ymax"))
            difficult = int(each.findtext("difficult", "0")) != 0
        except ValueError:
            raise UserError(f"{path} has an object without a box of four numbers; repair it.") from None
        # VOC counts pixels from 1 and includes the last one.
        found.append(VocObject(image, (x0 - 1, y0 - 1, x1, y1), CLASSES.index(name), difficult))
    return found
