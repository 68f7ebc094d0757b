"""Public data sets in their published layouts. Nothing is downloaded."""

import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from scfs.data.coco import open_coco
from scfs.data.files import FileSource, read_folder
from scfs.data.fine_grained import open_aircraft, open_cars, open_cub, open_pets
from scfs.data.source_repr import SourceRepr
from scfs.data.voc import open_voc
from scfs.errors import UserError

IMAGENETTE = ("imagenette2", "imagenette2-320", "imagenette2-160")  # the largest one found is used


class ArraySource(SourceRepr):
    """Labelled images in memory."""

    def __init__(self, title: str, pixels: NDArray[np.uint8], labels: NDArray[np.int32], classes: tuple[str, ...]):
        self.title, self.pixels, self.labels, self.classes = title, pixels, labels, classes

    def __len__(self) -> int:
        return len(self.pixels)

    def image(self, index: int) -> Image.Image:
        """The image as RGB."""
        return Image.fromarray(self.pixels[index].copy())

    def label(self, index: int) -> int:
        """The image's class."""
        return int(self.labels[index])

    def name(self, index: int) -> str:
        """The set, the split and the number in it."""
        return f"{self.title}/{index}"


def open_cifar10(root: Path, *, with_val: bool, max_pixels: int) -> tuple[ArraySource, ArraySource | None]:  # noqa: ARG001
    """CIFAR-10, read by torchvision: its train and test images."""
    return _cifar("CIFAR10", "cifar10", root, with_val)


def open_cifar100(root: Path, *, with_val: bool, max_pixels: int) -> tuple[ArraySource, ArraySource | None]:  # noqa: ARG001
    """CIFAR-100, read by torchvision: its train and test images, with the fine classes."""
    return _cifar("CIFAR100", "cifar100", root, with_val)


def open_imagenette(root: Path, *, with_val: bool, max_pixels: int) -> tuple[FileSource, FileSource | None]:
    """Imagenette, in any size: its train and val images."""
    folders = [root / name for name in IMAGENETTE] + [root]
    found = [folder for folder in folders if (folder / "train").is_dir() and (folder / "val").is_dir()]
    if not found:
        raise UserError(f"No Imagenette under {root}; expected imagenette2, -320 or -160 with train and val folders.")
    train = read_folder(found[0] / "train", max_pixels=max_pixels)
    return train, read_folder(found[0] / "val", max_pixels=max_pixels) if with_val else None


PUBLIC: dict[str, Callable[..., tuple[Any, Any]]] = {
    "cifar10": open_cifar10,
    "cifar100": open_cifar100,
    "imagenette": open_imagenette,
    "voc": open_voc,
    "coco": open_coco,
    "cub": open_cub,
    "cars": open_cars,
    "aircraft": open_aircraft,
    "pets": open_pets,
}


def _cifar(kind: str, title: str, root: Path, with_val: bool) -> tuple[ArraySource, ArraySource | None]:
    from torchvision import datasets

    dataset = getattr(datasets, kind)
    if root.name == dataset.base_folder:
        root = root.parent
    if not (root / dataset.base_folder).is_dir():
        raise UserError(f"No {kind} under {root}; expected the published folder {dataset.base_folder}.")

    def part(train: bool) -> ArraySource:
        try:
            with warnings.catch_warnings():  # NumPy warns about pickles this old
                warnings.simplefilter("ignore")
                data = dataset(str(root), train=train, download=False)
        except (RuntimeError, OSError, EOFError, KeyError, ValueError, pickle.UnpicklingError):
            raise UserError(
                f"{root / dataset.base_folder} is not the whole {kind} as published; unpack it again."
            ) from None
        labels = np.array(data.targets, np.int32)
        return ArraySource(f"{title}/{'train' if train else 'val'}", data.data, labels, tuple(data.classes))

    return part(True), part(False) if with_val else None
