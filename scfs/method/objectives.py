"""Losses between outputs of the student's heads and their targets: the paper's and three alternatives.

The paper's, and the default, is self-distillation (`SelfDistillation`). Feature search does not depend on it: the other
objectives take the same outputs and the same searched features. An objective has two methods:

    views    every view against every *other* global view (Eqs. 4-6)
    pairs    every query view against the features it found in each global view (Eq. 11)
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from scfs.method.losses import (
    Center,
    PairWeights,
    entropy,
    mean_over_pairs,
    mean_probs,
    other_views,
    search_loss,
    sharpen,
    sinkhorn,
    view_loss,
)
from scfs.method.search import upcast

# G global views, N local views, V any views, B images per process, A images of all processes, K head outputs


# From (..., B, K) of this process: (..., A, K) of all processes, and the index of this process's first image in it.
Gather = Callable[[Tensor], tuple[Tensor, int]]


def no_gather(values: Tensor) -> tuple[Tensor, int]:
    """The `Gather` of a single process."""
    return values, 0


class Term(NamedTuple):
    """A loss, the targets whose spread shows whether the head has collapsed, and what their softmax is like."""

    loss: Tensor
    targets: Tensor  # (..., B, K)
    # Of the teacher's probabilities; None without a softmax.
    entropy: Tensor | None = None  # a scalar
    mean_probs: Tensor | None = None  # (K,)


class Sharpening(NamedTuple):
    """How teacher logits become probabilities (Eq. 3); used by self-distillation only."""

    temperature: float
    center: Center | None = None


class Objective(Protocol):
    """A loss between head outputs and their targets."""

    @property
    def has_center(self) -> bool:
        """Whether targets are centered by a `Center`."""

    def views(self, outputs: Tensor, targets: Tensor, sharpening: Sharpening, /) -> Term:
        """outputs: (V, B, K), global views first. targets: (G, B, K)."""

    def pairs(
        self, outputs: Tensor, targets: Tensor, sharpening: Sharpening, /, weights: PairWeights | None = None
    ) -> Term:
        """outputs: (N, B, K). targets: (G, N, B, K)."""


@dataclass(frozen=True)
class SelfDistillation:
    """DINO's and the paper's: cross-entropy with the teacher's centered and sharpened softmax (Eqs. 3-6, 11)."""

    student_temp: float = 0.1
    centering: Literal["center", "sinkhorn"] = "center"
    gather: Gather = no_gather

    @property
    def has_center(self) -> bool:
        return self.centering == "center"

    def views(self, outputs: Tensor, targets: Tensor, sharpening: Sharpening) -> Term:
        """DINO's loss (Eqs. 4-6)."""
        probs = self._teacher_probs(targets, sharpening)
        return Term(view_loss(outputs, probs, self.student_temp), targets, entropy(probs), mean_probs(probs))

    def pairs(
        self,
        outputs: Tensor,
        targets: Tensor,
        sharpening: Sharpening,
        weights: PairWeights | None = None,
    ) -> Term:
        """The search loss (Eq. 11)."""
        probs = self._teacher_probs(targets, sharpening, None if weights is None else weights.weights)
        return Term(search_loss(outputs, probs, self.student_temp, weights), targets, entropy(probs), mean_probs(probs))

    def _teacher_probs(self, logits: Tensor, sharpening: Sharpening, weights: Tensor | None = None) -> Tensor:
        temperature, center = sharpening
        if self.centering == "sinkhorn":
            gathered, first = self.gather(upcast(logits))
            counted = None if weights is None else self.gather(weights.unsqueeze(-1))[0]
            return sinkhorn(gathered, temperature, counted)[..., first : first + logits.shape[-2], :]
        return sharpen(logits, temperature) if center is None else center.sharpen(logits, temperature, weights)


@dataclass(frozen=True)
class InfoNCE:
    """Classify the target of the same image among those of the whole batch, by cosine similarity (CPC, SimCLR, MoCo).

    With targets that have a gradient (`targets = "student"`), `views` is SimCLR's NT-Xent.
    """

    temperature: float = 0.1
    gather: Gather = no_gather
    has_center = False

    def views(self, outputs: Tensor, targets: Tensor, _: Sharpening | None = None) -> Term:
        """Negatives are the global views of all other images."""
        outputs, targets = _l2_normalize(outputs), _l2_normalize(targets)
        with torch.autocast(outputs.device.type, enabled=False):
            gathered, same = self._gathered(targets)
            cosines = torch.einsum("vbk,gak->vbga", outputs, gathered) / self.temperature
            negatives = cosines.masked_fill(same[:, None], -math.inf).flatten(2).logsumexp(dim=-1)  # (V, B)
            positives = torch.einsum("vbk,gbk->gvb", outputs, targets) / self.temperature
            pairs = torch.logaddexp(positives, negatives) - positives  # (G, V, B)
        return Term(_mean_over_other_views(pairs), targets)

    def pairs(
        self, outputs: Tensor, targets: Tensor, _: Sharpening | None = None, weights: PairWeights | None = None
    ) -> Term:
        """Negatives are the features that the same query view found in the other images, in pairs that count."""
        outputs, targets = _l2_normalize(outputs), _l2_normalize(targets)
        with torch.autocast(outputs.device.type, enabled=False):
            gathered, omitted = self._gathered(targets)
            if weights is not None:
                counted = self.gather(weights.weights.unsqueeze(-1))[0]  # (G, N, A, 1)
                omitted = omitted | (counted == 0).mT  # (G, N, B, A)
            cosines = torch.einsum("nbk,gnak->gnba", outputs, gathered) / self.temperature
            negatives = cosines.masked_fill(omitted, -math.inf).logsumexp(dim=-1)  # (G, N, B)
            positives = torch.einsum("nbk,gnbk->gnb", outputs, targets) / self.temperature
            pairs = torch.logaddexp(positives, negatives) - positives
        return Term(mean_over_pairs(pairs, weights), targets)

    def _gathered(self, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Targets (..., A, K) of all images, and a mask (B, A) that is true where both are of the same image."""
        gathered, first = self.gather(targets)
        rows = torch.arange(first, first + targets.shape[-2], device=targets.device)
        return gathered, rows.unsqueeze(1) == torch.arange(gathered.shape[-2], device=targets.device)


@dataclass(frozen=True)
class CodingRate:
    """Minimise distances between views and maximise the coding rate of the batch (SimDINO).

    The coding rate is 1/2 log det(I + K / epsilon^2 cov) of L2-normalised outputs. There are no negatives, center or
    temperature.
    """

    # Differs from SimDINO's code: epsilon is squared, as in its paper; the rate is divided by K, averaged over all
    # student views and has its own weight.

    epsilon: float = 0.5
    weight: float = 1.0
    gather: Gather = no_gather
    has_center = False

    def views(self, outputs: Tensor, targets: Tensor, _: Sharpening | None = None) -> Term:
        """Distances to the other global views, minus the mean coding rate of the views."""
        outputs, targets = _l2_normalize(outputs), _l2_normalize(targets)
        distances = (targets.unsqueeze(1) - outputs).square().sum(dim=-1) / 2  # (G, V, B)
        return Term(_mean_over_other_views(distances) - self._volume(outputs), targets)

    def pairs(
        self, outputs: Tensor, targets: Tensor, _: Sharpening | None = None, weights: PairWeights | None = None
    ) -> Term:
        """Distances to the searched features, minus the mean coding rate of the queries."""
        outputs, targets = _l2_normalize(outputs), _l2_normalize(targets)
        distances = (targets - outputs).square().sum(dim=-1) / 2  # (G, N, B)
        return Term(mean_over_pairs(distances, weights) - self._volume(outputs), targets)

    def _volume(self, outputs: Tensor) -> Tensor:
        gathered, _ = self.gather(outputs)  # (V, A, K)
        images, dim = gathered.shape[-2:]
        with torch.autocast(outputs.device.type, enabled=False):
            covariance = gathered.mT @ gathered / images  # (V, K, K)
            scaled = torch.eye(dim, device=outputs.device, dtype=covariance.dtype) + dim / self.epsilon**2 * covariance
            rates = torch.logdet(scaled) / 2
        return self.weight * rates.mean() / dim


@dataclass(frozen=True)
class VICReg:
    """Minimise distances between views; keep the standard deviation of each output at 1 and outputs uncorrelated."""

    # Differs from VICReg: outputs are scaled to norm sqrt(K), since search heads return unit vectors; the variance and
    # covariance terms are averaged over the student's views, so that their number does not change the weights.

    invariance_weight: float = 25.0
    variance_weight: float = 25.0
    covariance_weight: float = 2.0  # VICReg sums over two views at a weight of 1
    gather: Gather = no_gather
    has_center = False

    def views(self, outputs: Tensor, targets: Tensor, _: Sharpening | None = None) -> Term:
        """Distances to the other global views, and the mean regularisation of the views."""
        outputs, targets = self._scaled(outputs), self._scaled(targets)
        distances = (targets.unsqueeze(1) - outputs).square().mean(dim=-1)  # (G, V, B)
        loss = self.invariance_weight * _mean_over_other_views(distances) + self._regularisation(outputs)
        return Term(loss, targets)

    def pairs(
        self, outputs: Tensor, targets: Tensor, _: Sharpening | None = None, weights: PairWeights | None = None
    ) -> Term:
        """Distances to the searched features, and the mean regularisation of the queries."""
        outputs, targets = self._scaled(outputs), self._scaled(targets)
        distances = (targets - outputs).square().mean(dim=-1)  # (G, N, B)
        loss = self.invariance_weight * mean_over_pairs(distances, weights) + self._regularisation(outputs)
        return Term(loss, targets)

    def _scaled(self, outputs: Tensor) -> Tensor:
        return _l2_normalize(outputs) * math.sqrt(outputs.shape[-1])

    def _regularisation(self, outputs: Tensor) -> Tensor:
        gathered, _ = self.gather(outputs)  # (V, A, K)
        images, dim = gathered.shape[-2:]
        with torch.autocast(outputs.device.type, enabled=False):
            centered = gathered - gathered.mean(dim=-2, keepdim=True)
            covariance = centered.mT @ centered / (images - 1)  # (V, K, K)
        variances = covariance.diagonal(dim1=-2, dim2=-1)  # (V, K)
        variance_loss = F.relu(1 - (variances + 1e-4).sqrt()).mean()
        covariance_loss = (covariance.square().sum(dim=(-2, -1)) - variances.square().sum(dim=-1)).mean() / dim
        return self.variance_weight * variance_loss + self.covariance_weight * covariance_loss


def _l2_normalize(outputs: Tensor) -> Tensor:
    return F.normalize(upcast(outputs), dim=-1)


def _mean_over_other_views(pairs: Tensor) -> Tensor:
    """Mean of pairs (G, V, B), without those of a view with itself."""
    return other_views(pairs.mean(dim=-1)).mean()
