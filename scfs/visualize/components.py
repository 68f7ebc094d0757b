"""The first three principal components of maps as colours."""

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from scfs.visualize.projection import principal_components

# B images, C channels, H W map height and width

NUM_COLOURS = 3
OUTSIDE = 0.01  # fraction of positions beyond each end of the scale, so that a few of them do not darken the rest
MAX_POSITIONS = 20000  # to find the components in


def component_colours(maps: Sequence[Tensor]) -> list[NDArray[np.float32]]:
    """Colours (B, H, W, 3) from 0 to 1 of each group of maps (B, C, H, W): red, green and blue are the components.

    Components and scale are found over the L2-normalised positions of all maps together, so that equal colours mean
    similar features in every image of every group.
    """
    points = [F.normalize(each.float(), dim=1).movedim(1, -1).cpu() for each in maps]  # (B, H, W, C)
    positions = torch.cat([each.flatten(0, 2) for each in points])
    some = positions[:: max(1, len(positions) // MAX_POSITIONS)]
    mean = some.mean(dim=0)
    directions = principal_components(some - mean, NUM_COLOURS).directions.to(positions)  # (C, 3)
    values = (some - mean) @ directions
    low, high = (values.quantile(q, dim=0) for q in (OUTSIDE, 1 - OUTSIDE))
    scale = (high - low).clamp(min=1e-12)
    return [(((each - mean) @ directions - low) / scale).clamp(0, 1).numpy() for each in points]
