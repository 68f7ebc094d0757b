from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from scfs.data.decode import Unreadable
from scfs.data.loader import load
from scfs.data.segmentation import VOID, LabelMap, read_segmented
from scfs.data.sources import SegmentedSource
from scfs.data.unreadable import reading
from scfs.data.views import square_view


class SegmentedViews(NamedTuple):
    """Whole images as squares, with label maps of their own sizes."""

    indices: list[int]  # in the source
    views: Tensor  # (B, 3, size, size) uint8; blank where unreadable
    label_maps: list[LabelMap]  # (H, W) each; void where unreadable
    unreadable: list[str]  # why each image cannot be read; empty if it can


Item = tuple[int, Tensor, LabelMap, str]  # the same for one image


class SegmentedDataset(Dataset[Item]):
    """Every image of a source, with its label map."""

    def __init__(self, source: SegmentedSource, size: int):
        self.source, self.size = source, size

    def __getitem__(self, index: int) -> Item:
        try:
            with reading(self.source, index):
                image, label_map = read_segmented(self.source, index)
                return index, square_view(image, self.size), label_map, ""
        except Unreadable as error:
            blank = torch.zeros(3, self.size, self.size, dtype=torch.uint8)
            return index, blank, np.full((1, 1), VOID, np.uint8), str(error)


def segmented_loader(
    source: SegmentedSource, size: int, batches: Iterable[Sequence[int]], *, workers: int, pin: bool
) -> Iterator[SegmentedViews]:
    """The images of every batch, given by their indices."""
    dataset = SegmentedDataset(source, size)
    return load(dataset, workers=workers, pin=pin, batch_sampler=batches, collate_fn=_joined)


def _joined(items: list[Item]) -> SegmentedViews:
    indices, views, label_maps, unreadable = zip(*items, strict=True)
    return SegmentedViews(list(indices), torch.stack(views), list(label_maps), list(unreadable))
