import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scfs.method.search import upcast

# G global views, N local views, V any views, B images per process, K head outputs


def view_loss(student_logits: Tensor, teacher_probs: Tensor, temperature: float) -> Tensor:
    """Contrast every view with every other global view (Eqs. 3-6), averaged over pairs.

    student_logits: (V, B, K), global views first. teacher_probs: (G, B, K).
    """
    log_probs = F.log_softmax(upcast(student_logits) / temperature, dim=-1)
    with torch.autocast(student_logits.device.type, enabled=False):  # einsum would cast to half precision
        pairs = -torch.einsum("gbk,vbk->gv", teacher_probs, log_probs) / log_probs.shape[1]
    # Differs from the paper: the mean over pairs, not the sum, as in the released code; learning rates assume it.
    return other_views(pairs).mean()


def other_views(pairs: Tensor) -> Tensor:
    """The values (G V - G,) of pairs (G, V) of different views: those off the diagonal, row by row.

    By slicing: a mask would make the host wait for the device to count its elements.
    """
    num_global, num_views = pairs.shape
    flat = pairs.flatten()[1:]  # the other elements of the diagonal come at every (V + 1)th place
    blocks, rest = flat.tensor_split([(num_global - 1) * (num_views + 1)])
    return torch.cat([blocks.view(num_global - 1, num_views + 1)[:, :-1].flatten(), rest])


class PairWeights(NamedTuple):
    """Which pairs count, and the number to divide by: with several processes, the mean of their counts."""

    weights: Tensor  # (G, N, B) of 0 and 1
    num_pairs: Tensor


def mean_over_pairs(pairs: Tensor, weights: PairWeights | None) -> Tensor:
    """Mean of (G, N, B) over the pairs that count, by default all; 0 if there are none."""
    return pairs.mean() if weights is None else (pairs * weights.weights).sum() / weights.num_pairs.clamp(min=1e-6)


def search_loss(
    student_logits: Tensor, teacher_probs: Tensor, temperature: float, weights: PairWeights | None = None
) -> Tensor:
    """Contrast each query view with the features its search found (Eq. 11), averaged over the pairs that count.

    student_logits: (N, B, K). teacher_probs: (G, N, B, K).
    """
    log_probs = F.log_softmax(upcast(student_logits) / temperature, dim=-1)
    pairs = -(teacher_probs * log_probs).sum(dim=-1)  # (G, N, B)
    # Differs from the paper: the search loss, too, is a mean over pairs.
    return mean_over_pairs(pairs, weights)


def sharpen(logits: Tensor, temperature: float) -> Tensor:
    """Teacher probabilities of logits (..., K), without a center (Eq. 3)."""
    return F.softmax(upcast(logits) / temperature, dim=-1)


@torch.no_grad()
def sinkhorn(logits: Tensor, temperature: float, weights: Tensor | None = None, iterations: int = 3) -> Tensor:
    """Teacher probabilities of logits (..., K) that give each output an equal fraction of the batch (Sinkhorn-Knopp).

    Replaces the center, as in SwAV and DINOv2. weights: (...) of 0 and 1; logits of weight 0 are not counted.
    """
    scaled = upcast(logits).flatten(0, -2) / temperature
    counted = 1.0 if weights is None else weights.reshape(-1, 1).to(scaled.dtype)
    probs = (scaled - scaled.max()).exp()  # (samples, K)
    for _ in range(iterations):
        probs = probs / (counted * probs).sum(dim=0, keepdim=True).clamp(min=1e-30)
        probs = probs / probs.sum(dim=1, keepdim=True).clamp(min=1e-30)
    return probs.view_as(logits)


@torch.no_grad()
def entropy(probs: Tensor) -> Tensor:
    """Mean entropy of probabilities (..., K), divided by ln K: 0 for one-hot, 1 for uniform."""
    return -torch.xlogy(probs, probs).sum(dim=-1).mean() / math.log(probs.shape[-1])


@torch.no_grad()
def mean_probs(probs: Tensor) -> Tensor:
    """Mean probabilities (K,) of a batch (..., K)."""
    return probs.flatten(0, -2).mean(dim=0)


@torch.no_grad()
def used_outputs(mean: Tensor) -> Tensor:
    """How many outputs the mean probabilities (K,) of a batch use: exp of their entropy, from 1 to K."""
    return (-torch.xlogy(mean, mean).sum()).exp()


@torch.no_grad()
def agreement(outputs: Tensor, targets: Tensor) -> Tensor:
    """Mean cosine of student outputs (V, B, K) and teacher outputs (G, B, K) for the same global views."""
    return F.cosine_similarity(upcast(outputs[: len(targets)]), upcast(targets), dim=-1).mean()


@torch.no_grad()
def spread(pooled: Tensor, mean_over_processes: Callable[[Tensor], Tensor] = lambda tensor: tensor) -> Tensor:
    """Mean distance of L2-normalised features (..., C) from their mean: 0 when all are the same (collapse).

    With several processes, from the mean over all of them; the mean of the processes' spreads is then that of one
    process with all the images.
    """
    units = F.normalize(upcast(pooled), dim=-1).flatten(0, -2)
    return (units - mean_over_processes(units.mean(dim=0))).norm(dim=-1).mean()


@torch.no_grad()
def separation(pooled: Tensor) -> Tensor:
    """How far images can be told apart: 1 if all views of an image are the same, 0 if they are as those of any other.

    pooled: (G, B, C), the features of two or more views and images, of which the first two views are used. With mean
    cosines of two views, `same` of one image and `different` of two, it is (same - different) / (1 - different).
    """
    first, second = F.normalize(upcast(pooled[:2]), dim=-1)
    same, of_means = (first * second).sum(dim=-1).mean(), (first.mean(dim=0) * second.mean(dim=0)).sum()
    count = len(first)
    different = (count * of_means - same) / (count - 1)  # `of_means` has one pair of the same image in `count`
    return (same - different) / (1 - different).clamp(min=1e-6)


@torch.no_grad()
def pixel_spread(views: Tensor) -> Tensor:
    """Mean standard deviation of the pixels of a view (..., 3, H, W), per channel: 0 if each shows a single colour.

    From the mean of squares: `Tensor.std` of channels-last views took 4 % of a step on a CPU, this a sixth of it.
    """
    pixels = views.movedim(-3, -1).flatten(-3, -2)  # (..., H * W, 3)
    squares = pixels.square().mean(dim=-2)
    variances = squares - pixels.mean(dim=-2).square()
    rounding = 100 * torch.finfo(views.dtype).eps * squares
    return variances.where(variances > rounding, 0.0).sqrt().mean()


class Center(nn.Module):
    """Running mean of teacher logits, subtracted from them so that no output dominates (DINO's centering).

    `sharpen` only accumulates sums; `commit` updates the mean once per optimizer step, after the sums of all
    micro-batches and processes have been added up and the step has been found finite.
    """

    value: Tensor
    pending: Tensor

    def __init__(self, dim: int, momentum: float):
        super().__init__()
        self.momentum = momentum
        self.register_buffer("value", torch.zeros(dim))
        self.register_buffer("pending", torch.zeros(dim + 1), persistent=False)  # sums, then the count

    @torch.no_grad()
    def sharpen(self, logits: Tensor, temperature: float, weights: Tensor | None = None) -> Tensor:
        """Teacher probabilities of centered logits (..., K) (Eq. 3); the logits are counted in the next commit.

        weights: (...) of 0 and 1; logits of weight 0 are not counted. All 1 if absent.
        """
        flat = upcast(logits).flatten(0, -2)
        if weights is None:
            self.pending[:-1] += flat.sum(dim=0)
            self.pending[-1] += len(flat)
        else:
            # Not a matrix product, which autocast would compute in half precision.
            self.pending[:-1] += (weights.flatten().to(flat.dtype).unsqueeze(1) * flat).sum(dim=0)
            self.pending[-1] += weights.sum()
        return sharpen(upcast(logits) - self.value, temperature)

    @torch.no_grad()
    def commit(self) -> None:
        """Update the center with the mean of the logits counted since the last commit, if there are any."""
        count = self.pending[-1]
        mean = torch.where(count > 0, self.pending[:-1] / count, self.value)  # no host sync
        self.value.lerp_(mean, 1 - self.momentum)
        self.discard()

    @torch.no_grad()
    def discard(self) -> None:
        """Drop what was counted since the last commit, where the step is skipped."""
        self.pending.zero_()
