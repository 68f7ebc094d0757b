from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

NUM_AXES = 2
OVERSAMPLED, ITERATIONS, SEED = 8, 8, 0  # of the randomised decomposition


class Components(NamedTuple):
    """Principal components of some points."""

    directions: Tensor  # (C, count), of unit length; zeros where there are fewer
    variances: Tensor  # (count,) sum of squares along each


class Projection(NamedTuple):
    """Features on their first two principal components."""

    points: Tensor  # (images, 2)
    explained: Tensor  # (2,) fraction of the variance along each


@torch.no_grad()
def principal_components(centered: Tensor, count: int) -> Components:
    """The first principal components of points (points, C) of mean 0, by a randomised SVD with a fixed seed.

    The sign of each component is such that its largest weight is positive, so that pictures are the same every time.
    """
    points = centered.double()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        size = min(max(OVERSAMPLED, count), *points.shape)
        _, values, directions = torch.pca_lowrank(points, q=size, center=False, niter=ITERATIONS)
    values, directions = values[:count], directions[:, :count]  # (count,), (C, count)
    largest = directions.abs().argmax(dim=0, keepdim=True)
    directions = directions * directions.gather(0, largest).sign()
    missing = count - len(values)
    return Components(F.pad(directions, (0, missing)), F.pad(values.square(), (0, missing)))


def project(features: Tensor) -> Projection:
    """Principal component analysis of features (images, C)."""
    centered = features.double() - features.double().mean(dim=0)
    found = principal_components(centered, NUM_AXES)
    explained = found.variances / centered.square().sum().clamp(min=1e-30)
    return Projection((centered @ found.directions).float(), explained.float())
