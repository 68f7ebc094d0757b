"""PASCAL VOC as published: `VOCdevkit/VOC2007` and other years."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import numpy as np
from PIL import Image

from scfs.data.annotations import AnnotatedFiles, Columns, tabulate
from scfs.data.decode import FORMATS
from scfs.data.files import NO_LABELS, FileSource
from scfs.data.lists import list_files
from scfs.errors import UserError
from scfs.regular_file import open_regular, read_regular

CLASSES = (
    *("aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow"),
    *("diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor"),
)
MAX_BYTES = 2**26  # of the annotations of an image
TRAINVAL = ("trainval", "train", "val")


def open_voc(root: Path, *, with_val: bool, max_pixels: int) -> tuple[FileSource, None]:  # noqa: ARG001
    """The trainval images of every year of PASCAL VOC, without labels."""
    years = _years(root, MAIN)
    paths = [Member(year, name).below(root) for year in years for name in MAIN.trainval(year)]
    files = list_files(str(root), paths, origin=f"ImageSets/Main of {', '.join(map(str, years))}")
    return FileSource(files, NO_LABELS, (), max_pixels=max_pixels), None


def open_annotated_voc(root: Path, *, max_pixels: int) -> tuple[AnnotatedFiles, AnnotatedFiles]:
    """Images with their objects: trainval of every year for training, and the test images of 2007 for evaluation.

    If no year has test images with annotations, the train lists are for training and the val lists for evaluation.
    There are no masks: only some of the images have them.
    """
    train, val = split_members(root, MAIN)
    return _read(root, train, max_pixels), _read(root, val, max_pixels)


class Lists(NamedTuple):
    """What a task calls its lists of images, and the files with the truth about each of them."""

    name: str  # of the folder in ImageSets
    truth: str  # of an image, in the folder of its year

    def read(self, year: Path, *splits: str) -> list[str]:
        """The names of the images of some splits, sorted; a missing list counts as empty."""
        paths = [year / "ImageSets" / self.name / f"{split}.txt" for split in splits]
        return sorted({name for path in paths if path.is_file() for name in _words(path)})

    def trainval(self, year: Path) -> list[str]:
        """The images for training and validation."""
        names = self.read(year, TRAINVAL[0]) or self.read(year, *TRAINVAL[1:])
        if not names:
            folder = year / "ImageSets" / self.name
            raise UserError(f"{folder} has no trainval.txt with images; unpack the data set again.")
        return names

    def has_test(self, year: Path) -> bool:
        """Whether a year has test images with their truth: those of 2012 were never published."""
        names = self.read(year, "test")
        return bool(names) and Member(year, names[0]).truth(self).is_file()


MAIN = Lists("Main", "Annotations/{}.xml")
SEGMENTATION = Lists("Segmentation", "SegmentationClass/{}.png")


class Member(NamedTuple):
    """An image of a year."""

    year: Path
    name: str

    def truth(self, lists: Lists) -> Path:
        """The file with what a task wants to know about the image."""
        return self.year / lists.truth.format(self.name)

    def below(self, root: Path) -> bytes:
        """The path of the image, relative to the root."""
        return os.fsencode(f"{os.path.relpath(self.year / 'JPEGImages', root)}/{self.name}.jpg")


def split_members(root: Path, lists: Lists) -> tuple[list[Member], list[Member]]:
    """The images for training and those for evaluation, as `open_annotated_voc` describes them."""
    years = _years(root, lists)
    tests = [year for year in years if lists.has_test(year)]
    if tests:
        train = _members(
            {year: lists.trainval(year) for year in years if year not in tests or lists.read(year, *TRAINVAL)}
        )
        val = _members({tests[0]: lists.read(tests[0], "test")})
    else:
        train, val = (_members({year: lists.read(year, split) for year in years}) for split in ("train", "val"))
    for split, members in (("train", train), ("val", val)):
        if not members:
            where = f"ImageSets/{lists.name} of {', '.join(map(str, years))}"
            raise UserError(f"No {split} images in {where}; unpack them again.")
    return train, val


class VocObject(NamedTuple):
    """An object of an image, as in its annotation file."""

    image: int
    box: tuple[float, float, float, float]
    label: int
    difficult: bool


def _years(root: Path, lists: Lists) -> list[Path]:
    if _is_voc(root, lists):
        return [root]
    years = sorted(path for path in (*root.glob("VOC20*"), *root.glob("VOCdevkit/VOC20*")) if _is_voc(path, lists))
    if not years:
        wanted = f"VOCdevkit/VOC2007 or another year with ImageSets/{lists.name}"
        raise UserError(f"No PASCAL VOC under {root}; expected {wanted}.")
    return years


def _is_voc(folder: Path, lists: Lists) -> bool:
    return (folder / "ImageSets" / lists.name).is_dir() and (folder / "JPEGImages").is_dir()


def _members(names: dict[Path, list[str]]) -> list[Member]:
    """Every image once: later years repeat those of earlier years, except 2007's."""
    years = {name: year for year, listed in names.items() for name in listed}
    return [Member(year, name) for name, year in sorted(years.items(), key=lambda item: (item[1], item[0]))]


def _read(root: Path, members: Sequence[Member], max_pixels: int) -> AnnotatedFiles:
    files = list_files(str(root), [member.below(root) for member in members], origin="ImageSets/Main")
    sizes, objects = np.empty((len(members), 2), np.int32), list[VocObject]()
    for image, member in enumerate(members):
        tree = _parse(member.truth(MAIN))
        sizes[image] = _size(tree, files.path(image))
        objects += _objects(tree, image, member.truth(MAIN))
    columns = Columns(
        images=np.array([each.image for each in objects], np.int64),
        boxes=np.array([each.box for each in objects], np.float64).reshape(-1, 4),
        labels=np.array([each.label for each in objects], np.int64),
        crowd=np.zeros(len(objects), np.bool_),
        difficult=np.array([each.difficult for each in objects], np.bool_),
        areas=np.full(len(objects), np.nan),
        ids=np.arange(1, len(objects) + 1),
    )
    table, notes = tabulate(columns, sizes, None, [], name=lambda row: f"in {members[objects[row].image].truth(MAIN)}")
    return AnnotatedFiles(
        files,
        table,
        CLASSES,
        image_ids=np.arange(len(members)),
        category_ids=tuple(range(1, len(CLASSES) + 1)),
        notes=tuple(f"{root}: {note}" for note in notes),
        max_pixels=max_pixels,
    )


def _words(path: Path) -> list[str]:
    try:
        return read_regular(path, limit=MAX_BYTES).decode("utf-8").split()
    except OSError as error:
        raise UserError(f"Cannot read list {path}: {error.strerror}; unpack the data set again.") from None
    except UnicodeDecodeError:
        raise UserError(f"{path} is not a text file; unpack the data set again.") from None


def _parse(path: Path) -> ElementTree.Element:
    try:
        return ElementTree.fromstring(read_regular(path, limit=MAX_BYTES))
    except OSError as error:
        raise UserError(f"Cannot read annotations {path}: {error.strerror}; unpack the data set again.") from None
    except (ElementTree.ParseError, LookupError, ValueError):  # bad XML or encoding
        raise UserError(f"{path} is not XML, or it is cut short; unpack the data set again.") from None


def _size(tree: ElementTree.Element, image: str) -> tuple[int, int]:
    """The image's size from the annotations or, if they have none, from its header."""
    try:
        width, height = (int(tree.findtext(f"size/{side}", "")) for side in ("width", "height"))
        if min(width, height) > 0 and max(width, height) < 2**31:
            return width, height
    except ValueError:
        pass
    try:
        with open_regular(image) as file, Image.open(file, formats=FORMATS) as opened:
            return opened.size
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
