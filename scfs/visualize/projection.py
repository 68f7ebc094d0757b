from typing import NamedTuple

import torch
from torch import Tensor

NUM_AXES = 2
NUM_COMPONENTS, ITERATIONS, SEED = 8, 8, 0  # of the randomised decomposition; more than the axes, for accuracy


class Projection(NamedTuple):
    """Features on their first two principal components."""

    points: Tensor  # (images, 2)
    explained: Tensor  # (2,) fraction of the variance along each


@torch.no_grad()
def project(features: Tensor) -> Projection:
    """Principal component analysis of features (images, C), by a randomised SVD with a fixed seed.

    The sign of each component is such that its largest weight is positive, so that the picture is the same every time.
    """
    centered = features.double() - features.double().mean(dim=0)
    components = min(NUM_COMPONENTS, *centered.shape)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        _, values, directions = torch.pca_lowrank(centered, q=components, center=False, niter=ITERATIONS)
    values, directions = values[:NUM_AXES], directions[:, :NUM_AXES]  # (2,), (C, 2); fewer if there are fewer
    largest = directions.abs().argmax(dim=0, keepdim=True)
    directions = directions * directions.gather(0, largest).sign()
    missing = NUM_AXES - len(values)
    points = torch.nn.functional.pad(centered @ directions, (0, missing))
    explained = torch.nn.functional.pad(values.square(), (0, missing)) / centered.square().sum().clamp(min=1e-30)
    return Projection(points.float(), explained.float())
