"""How outputs of the student's heads are contrasted with their targets: the paper's way, and three others.

The paper's contrast is self-distillation (`SelfDistillation`), which stays the default. Feature search does not depend
on it: the other objectives take the same outputs and the same searched features. An objective has two methods:

    views    every view against every *other* global view (Eqs. 4-6)
    pairs    every query view against what it found in each global view (Eq. 11)
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from scfs.method.losses import Center, entropy, search_loss, sharpen, sinkhorn, view_loss
from scfs.method.search import upcast

# G global views, N local views, V any views, B images per process, A images of all processes, K head outputs


# Tensors (..., B, K) of all processes as (..., A, K), and the index of this process's first image in them.
Gather = Callable[[Tensor], tuple[Tensor, int]]


def no_gather(values: Tensor) -> tuple[Tensor, int]:
    """The images of this process alone."""
    return values, 0


class Term(NamedTuple):
    """One contrast: its loss, the targets whose spread says whether its head has collapsed, and their entropy."""

    loss: Tensor
    targets: Tensor  # (..., B, K)
    entropy: Tensor | None = None  # of the teacher's probabilities, a scalar; None without a softmax


class Sharpening(NamedTuple):
    """What makes probabilities of the teacher's logits: only self-distillation needs it."""

    temperature: float
    center: Center | None = None


class PairWeights(NamedTuple):
    """Which pairs count, and how many to divide by: with several processes, the mean of their numbers."""

    weights: Tensor  # (G, N, B) of 0 and 1
    num_pairs: Tensor

    def mean(self, pairs: Tensor) -> Tensor:
        """The mean over the pairs that count; 0 if there are none."""
        return (pairs * self.weights).sum() / self.num_pairs.clamp(min=1e-6)


class Objective(Protocol):
    """A contrast of head outputs with their targets."""

    @property
    def has_center(self) -> bool:
        """Whether targets are centered by a running mean."""

    def views(self, outputs: Tensor, targets: Tensor, sharpening: Sharpening, /) -> Term:
        """outputs: (V, B, K), global views first. targets: (G, B, K)."""

    def pairs(
        self, outputs: Tensor, targets: Tensor, sharpening: Sharpening, /, weights: PairWeights | None = None
    ) -> Term:
        """outputs: (N, B, K). targets: (G, N, B, K)."""


@dataclass(frozen=True)
class SelfDistillation:
    """The paper's: the student's softmax follows the teacher's, which is centered and sharper (Eqs. 3-6, 11)."""

    student_temp: float = 0.1
    centering: Literal["center", "sinkhorn"] = "center"
    gather: Gather = no_gather

    @property
    def has_center(self) -> bool:
        return self.centering == "center"

    def views(self, outputs: Tensor, targets: Tensor, sharpening: Sharpening) -> Term:
        """As in DINO."""
        probs = self._teacher_probs(targets, sharpening)
        return Term(view_loss(outputs, probs, self.student_temp), targets, entropy(probs))

    def pairs(
        self,
        outputs: Tensor,
        targets: Tensor,
        sharpening: Sharpening,
        weights: PairWeights | None = None,
    ) -> Term:
        """As in DINO, on searched features."""
        probs = self._teacher_probs(targets, sharpening, None if weights is None else weights.weights)
        loss = search_loss(outputs, probs, self.student_temp, *(weights or ()))
        return Term(loss, targets, entropy(probs))

    def _teacher_probs(self, logits: Tensor, sharpening: Sharpening, weights: Tensor | None = None) -> Tensor:
        temperature, center = sharpening
        if self.centering == "sinkhorn":
            gathered, first = self.gather(upcast(logits))
            return sinkhorn(gathered, temperature)[..., first : first + logits.shape[-2], :]
        return sharpen(logits, temperature) if center is None else center.sharpen(logits, temperature, weights)


@dataclass(frozen=True)
class InfoNCE:
    """Tell the target of the same image from those of the other images of the batch, by cosine (CPC, SimCLR, MoCo).

    Where targets have a gradient, as with `targets = "student"`, `views` is SimCLR's NT-Xent.
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
        return Term(_other_views(pairs), targets)

    def pairs(
        self, outputs: Tensor, targets: Tensor, _: Sharpening | None = None, weights: PairWeights | None = None
    ) -> Term:
        """Negatives are what the same query views of the other images found."""
        outputs, targets = _l2_normalize(outputs), _l2_normalize(targets)
        with torch.autocast(outputs.device.type, enabled=False):
            gathered, same = self._gathered(targets)
            cosines = torch.einsum("nbk,gnak->gnba", outputs, gathered) / self.temperature
            negatives = cosines.masked_fill(same, -math.inf).logsumexp(dim=-1)  # (G, N, B)
            positives = torch.einsum("nbk,gnbk->gnb", outputs, targets) / self.temperature
            pairs = torch.logaddexp(positives, negatives) - positives
        return Term(_mean(pairs, weights), targets)

    def _gathered(self, targets: Tensor) -> tuple[Tensor, Tensor]:
        """The targets (..., A, K) of all images, and which of them (B, A) are of the same image as each of ours."""
        gathered, first = self.gather(targets)
        ours = torch.arange(first, first + targets.shape[-2], device=targets.device)
        return gathered, ours.unsqueeze(1) == torch.arange(gathered.shape[-2], device=targets.device)


@dataclass(frozen=True)
class CodingRate:
    """Pull views together and keep the volume of all images' outputs large (SimDINO).

    The volume is the coding rate 1/2 log det(I + K / epsilon^2 cov) of unit outputs. It needs no negatives, center or
    temperature.

    # Differs from SimDINO's code: the rate is as in its paper (epsilon squared), a mean per output and over all student
    # views, with a weight of its own.
    """

    epsilon: float = 0.5
    weight: float = 1.0
    gather: Gather = no_gather
    has_center = False

    def views(self, outputs: Tensor, targets: Tensor, _: Sharpening | None = None) -> Term:
        """Distances to the other global views, less the mean coding rate of the views."""
        outputs, targets = _l2_normalize(outputs), _l2_normalize(targets)
        distances = (targets.unsqueeze(1) - outputs).square().sum(dim=-1) / 2  # (G, V, B)
        return Term(_other_views(distances) - self._volume(outputs), targets)

    def pairs(
        self, outputs: Tensor, targets: Tensor, _: Sharpening | None = None, weights: PairWeights | None = None
    ) -> Term:
        """Distances to the searched features, less the mean coding rate of the queries."""
        outputs, targets = _l2_normalize(outputs), _l2_normalize(targets)
        distances = (targets - outputs).square().sum(dim=-1) / 2  # (G, N, B)
        return Term(_mean(distances, weights) - self._volume(outputs), targets)

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
    """Pull views together, keep every output's standard deviation at 1 and outputs uncorrelated.

    # Differs from VICReg: outputs are scaled to the length of K ones, since search heads give unit vectors; the terms
    # of variance and covariance are means over the student's views, so that any number of them weighs as much as two.
    """

    invariance_weight: float = 25.0
    variance_weight: float = 25.0
    covariance_weight: float = 2.0  # VICReg adds up two views at a weight of 1
    gather: Gather = no_gather
    has_center = False

    def views(self, outputs: Tensor, targets: Tensor, _: Sharpening | None = None) -> Term:
        """Distances to the other global views, and the mean regularisation of the views."""
        outputs, targets = self._scaled(outputs), self._scaled(targets)
        distances = (targets.unsqueeze(1) - outputs).square().mean(dim=-1)  # (G, V, B)
        loss = self.invariance_weight * _other_views(distances) + self._regularisation(outputs)
        return Term(loss, targets)

    def pairs(
        self, outputs: Tensor, targets: Tensor, _: Sharpening | None = None, weights: PairWeights | None = None
    ) -> Term:
        """Distances to the searched features, and the mean regularisation of the queries."""
        outputs, targets = self._scaled(outputs), self._scaled(targets)
        distances = (targets - outputs).square().mean(dim=-1)  # (G, N, B)
        loss = self.invariance_weight * _mean(distances, weights) + self._regularisation(outputs)
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


def _other_views(pairs: Tensor) -> Tensor:
    """The mean of pairs (G, V, B) without those of a view with itself."""
    views = pairs.mean(dim=-1)
    return views[~torch.eye(*views.shape, dtype=torch.bool, device=views.device)].mean()


def _mean(pairs: Tensor, weights: PairWeights | None) -> Tensor:
    return pairs.mean() if weights is None else weights.mean(pairs)
