"""How well attention tells the region that a query came from: AUROC and pointing, of maps on a common grid."""

from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from PIL import Image

from scfs.visualize.queries import Box

# Q queries, H W map height and width, GRID x GRID positions of the common grid

GRID = 64  # positions a side to which attention and regions are brought, so that layers can be compared


class Localization(NamedTuple):
    """Two scores of a map against a region, both from 0 to 1."""

    auroc: float  # probability that a position inside has more attention than one outside; ties count half
    pointing: float  # whether the position of most attention is inside; the fraction of them if several have most


def localization(values: NDArray[np.float32], region: NDArray[np.bool_], counted: NDArray[np.bool_]) -> Localization:
    """Scores of values (GRID, GRID) against a region, at the counted positions; both sides must have some."""
    chosen, inside = values[counted], region[counted]
    return Localization(_auroc(chosen, inside), float(inside[chosen == chosen.max()].mean()))


def _auroc(values: NDArray[np.float32], inside: NDArray[np.bool_]) -> float:
    """The Mann-Whitney statistic, by ranks that ties share."""
    _, numbers, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[numbers]
    num_inside = int(inside.sum())
    above = ranks[inside].sum() - num_inside * (num_inside + 1) / 2
    return float(above / (num_inside * (len(inside) - num_inside)))


def on_grid(attention: NDArray[np.float32]) -> NDArray[np.float32]:
    """Maps (Q, H, W) as (Q, GRID, GRID), bilinear."""
    maps = torch.from_numpy(attention).unsqueeze(1)
    return F.interpolate(maps, (GRID, GRID), mode="bilinear", align_corners=False).squeeze(1).numpy()


def mask_on_grid(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Where at least half of a cell (GRID, GRID) of the image is inside a mask."""
    covered = Image.fromarray(mask.astype(np.uint8) * 255).resize((GRID, GRID), Image.Resampling.BOX)
    return np.asarray(covered) >= 128


def distance_map(box: Box, image_size: tuple[int, int]) -> NDArray[np.float32]:
    """Plain geometry: minus the distance (GRID, GRID) of every position from a box, in widths and heights."""
    centres = (np.arange(GRID) + 0.5) / GRID
    outside = []
    for low, high, extent in zip(box[:2], box[2:], image_size, strict=True):
        outside.append(np.maximum(0, np.maximum(low / extent - centres, centres - high / extent)))
    return -np.hypot(outside[0][None, :], outside[1][:, None]).astype(np.float32)
