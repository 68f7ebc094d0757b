"""Label maps at the resolution of a backbone's maps: every position has its cell of the image."""

import numpy as np
import torch
from torch import Tensor

from scfs.data.segmentation import VOID, LabelMap

# H W label map, h w map height and width, K classes


def class_fractions(label_map: LabelMap, shape: tuple[int, int], num_classes: int) -> Tensor:
    """The fraction of each class among the pixels of every cell: (h * w, K) float32.

    Void pixels do not count: the fractions of a cell add up to 1, or to 0 where all is void.
    """
    height, width = shape
    rows, columns = (np.arange(extent) * cells // extent for extent, cells in zip(label_map.shape, shape, strict=True))
    cells = rows[:, None] * width + columns  # (H, W), of each pixel
    kept = label_map != VOID
    found = cells[kept] * num_classes + label_map[kept]
    counts = np.bincount(found, minlength=height * width * num_classes).reshape(height * width, num_classes)
    fractions = counts / counts.sum(axis=1, keepdims=True).clip(min=1)
    return torch.from_numpy(fractions.astype(np.float32))


def sampled(label_map: LabelMap, shape: tuple[int, int]) -> Tensor:
    """The classes of the pixels in the middle of every cell: (h, w) uint8."""
    rows, columns = (
        ((np.arange(cells) + 0.5) * extent / cells).astype(np.int64)
        for extent, cells in zip(label_map.shape, shape, strict=True)
    )
    return torch.from_numpy(label_map[rows[:, None], columns])
