"""t-SNE (van der Maaten and Hinton, 2008), exact: for up to about a thousand points."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from scfs.visualize.projection import project

# N points, C channels

PERPLEXITY = 30.0
ITERATIONS, EXAGGERATED = 400, 100  # steps in all, and those with exaggerated affinities
EXAGGERATION = 12.0
MIN_POINTS = 8  # with fewer, neighbourhoods mean nothing
BISECTIONS = 40


@torch.no_grad()
def tsne(features: Tensor) -> Tensor:
    """Points (N, 2) whose neighbours are the neighbours of L2-normalised features (N, C).

    It starts from the first two principal components, so that it is the same every time. Of fewer than eight points,
    it is those components.
    """
    units = F.normalize(features.double(), dim=-1)
    start = project(units).points.double()
    if len(units) < MIN_POINTS:
        return start.float()
    affinities = _affinities(torch.cdist(units, units).square()).float()
    points = (1e-4 * start / start.std(dim=0).clamp(min=1e-12)).float()
    return _descend(points, affinities)


def _affinities(distances: Tensor) -> Tensor:
    """Symmetric affinities (N, N) of squared distances, each row a Gaussian of the same perplexity."""
    count = len(distances)
    target = math.log(min(PERPLEXITY, (count - 1) / 3))
    distances = distances.clone().fill_diagonal_(math.inf)
    low, high = torch.zeros(count, 1).double(), torch.full((count, 1), math.inf).double()
    precision = torch.ones(count, 1).double()
    for _ in range(BISECTIONS):
        log_p = F.log_softmax(-precision * distances, dim=1)
        entropy = -(log_p.exp() * log_p.masked_fill(log_p.isinf(), 0)).sum(dim=1, keepdim=True)
        is_wide = entropy > target
        low, high = torch.where(is_wide, precision, low), torch.where(is_wide, high, precision)
        precision = torch.where(high.isinf(), 2 * precision, (low + high) / 2)
    rows = F.softmax(-precision * distances, dim=1)
    return ((rows + rows.T) / (2 * count)).clamp(min=1e-12)


def _descend(points: Tensor, affinities: Tensor) -> Tensor:
    """Gradient descent with momentum and a gain per coordinate, as in the authors' implementation."""
    velocity, gains = torch.zeros_like(points), torch.ones_like(points)
    rate = max(len(points) / EXAGGERATION / 4, 50.0)
    for step in range(ITERATIONS):
        scale, momentum = (EXAGGERATION, 0.5) if step < EXAGGERATED else (1.0, 0.8)
        gradient = _gradient(points, affinities, scale)
        gains = torch.where(gradient.sign() == velocity.sign(), 0.8 * gains, gains + 0.2).clamp(min=0.01)
        velocity = momentum * velocity - rate * gains * gradient
        points = points + velocity
        points = points - points.mean(dim=0)
    return points


def _gradient(points: Tensor, affinities: Tensor, scale: float) -> Tensor:
    """Of the Kullback-Leibler divergence; affinities are scaled while they are exaggerated."""
    squares = points.square().sum(dim=1)
    weights = 1 / (1 + squares[:, None] + squares[None] - 2 * points @ points.T).clamp(min=1)
    weights.fill_diagonal_(0)
    forces = (scale * affinities - weights / weights.sum()) * weights  # (N, N)
    return 4 * (forces.sum(dim=1, keepdim=True) * points - forces @ points)
