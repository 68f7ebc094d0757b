"""Images with their objects, for training and scoring detectors."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

from scfs.data.annotations import Objects
from scfs.data.decode import Unreadable
from scfs.data.loader import derive_seed
from scfs.data.sources import AnnotatedSource, Source
from scfs.data.unreadable import first_readable, reading

# N objects of an image, H W height and width of the image

MAX_RATIO = 100  # of the sides of an image


class AnnotatedImage(NamedTuple):
    """An image with the objects that a detector is trained to find."""

    image: Tensor  # (3, H, W) uint8
    boxes: Tensor  # (N, 4) x0 y0 x1 y1
    labels: Tensor  # (N,) from 0
    masks: Tensor | None  # (N, H, W) uint8


class AnnotatedBatch(NamedTuple):
    """Images of any sizes, and why some were replaced by others; empty where they were not."""

    images: list[AnnotatedImage]
    unreadable: list[str]


class AnnotatedDataset(Dataset[Any]):
    """The image of (epoch, index) and its objects, flipped or not: a function of (seed, epoch, index).

    Crowds are left out: they are not objects to be found.
    """

    def __init__(self, source: AnnotatedSource, seed: int, *, with_masks: bool):
        self.source, self.seed, self.with_masks = source, seed, with_masks

    def __getitem__(self, key: tuple[int, int]) -> tuple[AnnotatedImage, str]:
        epoch, index = key
        annotated, _, unreadable = first_readable(self.source, index, self._annotated)
        if derive_seed(self.seed, epoch, index) % 2:
            annotated = flipped(annotated)
        return annotated, "".join(unreadable[:1])

    def _annotated(self, image: Image.Image, index: int) -> AnnotatedImage:
        masks = self.source.masks(index) if self.with_masks else None
        return _as_tensors(image, self.source.objects(index), masks)


def _as_tensors(image: Image.Image, objects: Objects, masks: Any) -> AnnotatedImage:
    kept = ~objects.crowd
    return AnnotatedImage(
        image_tensor(image),
        torch.from_numpy(objects.boxes[kept]),
        torch.from_numpy(objects.labels[kept]),
        None if masks is None else torch.from_numpy(masks[kept].view(np.uint8)),
    )


def image_tensor(image: Image.Image) -> Tensor:
    """(3, H, W) uint8; a `ValueError` for a line of pixels, of which nothing is left at the size of a detector."""
    if max(image.size) > MAX_RATIO * min(image.size):
        raise ValueError(f"{image.width} x {image.height} pixels are too narrow for a detector")
    return torch.from_numpy(np.array(image)).movedim(-1, 0).contiguous()


def flipped(annotated: AnnotatedImage) -> AnnotatedImage:
    """The mirror image."""
    x0, y0, x1, y1 = annotated.boxes.unbind(dim=1)
    width, masks = annotated.image.shape[-1], annotated.masks
    return AnnotatedImage(
        annotated.image.flip(-1),
        torch.stack([width - x1, y0, width - x0, y1], dim=1),
        annotated.labels,
        None if masks is None else masks.flip(-1),
    )


def collate(samples: Sequence[tuple[AnnotatedImage, str]]) -> AnnotatedBatch:
    """Images of different sizes stay apart; the detector pads them."""
    images, unreadable = zip(*samples, strict=True)
    return AnnotatedBatch(list(images), list(unreadable))


class ScoredImage(NamedTuple):
    """An image to find objects in."""

    number: int  # its index in the source
    image: Tensor  # (3, H, W) uint8; a single black pixel where it is unreadable
    unreadable: str  # why it cannot be read; empty if it can


class ScoredDataset(Dataset[ScoredImage]):
    """Some images of a source, as they are."""

    def __init__(self, source: Source, indices: Sequence[int]):
        self.source, self.indices = source, indices

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, item: int) -> ScoredImage:
        index = self.indices[item]
        try:
            with reading(self.source, index):
                return ScoredImage(index, image_tensor(self.source.image(index)), "")
        except Unreadable as error:
            return ScoredImage(index, torch.zeros(3, 1, 1, dtype=torch.uint8), str(error))
