import mmap
import re
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
from PIL import Image

from scfs.data.decode import read_image
from scfs.data.scenes import CLASSES, SIZE, render_scene, scene_label
from scfs.errors import UserError

Split = Literal["train", "val"]
SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff")


class Source(Protocol):
    """Where images come from: numbered RGB images, with labels if there are classes."""

    classes: tuple[str, ...]  # empty when the images have no labels

    def __len__(self) -> int: ...

    def image(self, index: int) -> Image.Image:
        """The image as RGB."""

    def label(self, index: int) -> int:
        """The image's class, as a place in `classes`."""


class SceneSource:
    """The embedded data set: every image is painted when it is first asked for, and kept.

    Painting costs as much as cutting the views, so the pixels are kept in memory that forked loader processes share
    (50 kB a scene); a process that is not forked keeps its own.
    """

    classes = CLASSES
    seed = 0

    def __init__(self, split: Split, size: int):
        self.split, self.size = split, size
        self._keep()

    def __len__(self) -> int:
        return self.size

    def __getstate__(self) -> tuple[Split, int]:
        return self.split, self.size

    def __setstate__(self, state: tuple[Split, int]) -> None:
        self.split, self.size = state
        self._keep()

    def _keep(self) -> None:
        pixels, painted = (mmap.mmap(-1, self.size * count) for count in (SIZE * SIZE * 3, 1))
        self.pixels = np.frombuffer(pixels, np.uint8).reshape(self.size, SIZE, SIZE, 3)
        self.painted = np.frombuffer(painted, np.bool_)

    def image(self, index: int) -> Image.Image:
        """The scene as an image."""
        if not self.painted[index]:
            self.pixels[index] = render_scene(self.seed, self.split, index).image
            self.painted[index] = True  # after the pixels: others may be looking
        return Image.fromarray(self.pixels[index].copy())

    def label(self, index: int) -> int:
        """The class of the scene's object."""
        return scene_label(self.seed, self.split, index)


class FileSource:
    """Image files, with labels if `classes` is not empty."""

    def __init__(self, files: list[Path], labels: list[int], classes: tuple[str, ...]):
        self.files, self.labels, self.classes = files, labels, classes

    def __len__(self) -> int:
        return len(self.files)

    def image(self, index: int) -> Image.Image:
        """The decoded file."""
        return read_image(self.files[index])

    def label(self, index: int) -> int:
        """The place of the file's class folder among all class folders."""
        return self.labels[index]


def read_folder(root: Path) -> FileSource:
    """Every image below a folder. If all of them lie in subfolders, those are the classes."""
    if not root.is_dir():
        raise UserError(f"No folder at {root}; give a folder of images or 'scenes'.")
    files = sorted(path for path in root.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())
    if not files:
        raise UserError(f"No images under {root} (looked for {', '.join(SUFFIXES)}).")
    tops = [path.relative_to(root).parts for path in files]
    if any(len(parts) == 1 for parts in tops):
        return FileSource(files, [], ())
    classes = tuple(sorted({parts[0] for parts in tops}))
    place = {name: i for i, name in enumerate(classes)}
    return FileSource(files, [place[parts[0]] for parts in tops], classes)


def open_train(name: str) -> Source:
    """The images to pre-train on: `scenes`, a folder's `train` folder, or else the whole folder."""
    if (sizes := _scene_sizes(name)) is not None:
        return SceneSource("train", sizes[0])
    root = _folder(name)
    return read_folder(root / "train" if (root / "train").is_dir() else root)


def open_labelled(name: str) -> tuple[Source, Source]:
    """Labelled images to learn from and to score: `scenes`, a folder with `train` and `val`, or class folders.

    Of plain class folders, every fifth image of a class is scored and the others are learnt from.
    """
    if (sizes := _scene_sizes(name)) is not None:
        return SceneSource("train", sizes[0]), SceneSource("val", sizes[1])
    root = _folder(name)
    if (root / "train").is_dir() and (root / "val").is_dir():
        train, val = read_folder(root / "train"), read_folder(root / "val")
        if train.classes != val.classes:
            odd = sorted(set(train.classes) ^ set(val.classes))
            raise UserError(
                f"The class folders of {root / 'train'} and {root / 'val'} differ ({odd[0]!r} is in one only)."
            )
    else:
        train, val = _every_fifth(read_folder(root))
    if not train.classes:
        raise UserError(f"The images under {root} have no labels: put each class into a folder of its own.")
    return train, val


def _every_fifth(source: FileSource) -> tuple[FileSource, FileSource]:
    seen = [0] * len(source.classes)
    parts: tuple[list[int], list[int]] = ([], [])
    for index, label in enumerate(source.labels):
        seen[label] += 1
        parts[seen[label] % 5 == 0].append(index)
    train, val = (
        FileSource([source.files[i] for i in part], [source.labels[i] for i in part], source.classes) for part in parts
    )
    if source.classes and not len(val):
        raise UserError("Too few images to score: each class needs at least 5, or give train and val folders.")
    return train, val


def _folder(name: str) -> Path:
    if not name:
        raise UserError("data.source is not set; give a folder of images or 'scenes'.")
    return Path(name).expanduser()


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
