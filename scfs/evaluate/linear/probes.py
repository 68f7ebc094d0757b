import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scfs.distributed import gather_rows, mean_over_processes, parallel
from scfs.evaluate.accuracy import Accuracy
from scfs.evaluate.knn.neighbours import ranked_hits
from scfs.training.gradients import NotFiniteError
from scfs.training.schedules import cosine

# B images, P probes, R rates, K classes, D features

CHUNK = 8192  # images that are classified at a time


class Probes(nn.Module):
    """Linear classifiers on frozen features, one per learning rate, all trained in one pass over the images.

    Each rate has two: one never sees the held-out images, on which the rate is chosen; the other, reported, sees all.
    """

    def __init__(self, dim: int, num_classes: int, rates: tuple[float, ...]):
        super().__init__()
        self.rates = rates
        self.weight = nn.Parameter(0.01 * torch.randn(2 * len(rates), num_classes, dim))  # (P, K, D)
        self.bias = nn.Parameter(torch.zeros(2 * len(rates), num_classes))

    def logits(self, features: Tensor) -> Tensor:
        """features: (B, D) -> (P, B, K)."""
        return torch.einsum("bd,pkd->pbk", features, self.weight) + self.bias.unsqueeze(1)

    def forward(self, features: Tensor, labels: Tensor, held_out: Tensor, counts: Tensor) -> Tensor:
        """The loss of each probe (P,), a mean over the images it may see.

        features: (B, D); labels: (B,); held_out: (B,) bool. counts: (2,), how many are not held out, and how many there
        are; with several processes, means over them.
        """
        logits = self.logits(features)
        each = F.cross_entropy(logits.flatten(0, 1), labels.repeat(len(logits)), reduction="none").view(len(logits), -1)
        choosing, reported = each.split(len(self.rates))
        num_kept, num_images = counts.clamp(min=1e-6)  # without an image to see, the sum is 0
        return torch.cat([(choosing * ~held_out).sum(dim=1) / num_kept, reported.sum(dim=1) / num_images])

    def best_rate(self, features: Tensor, labels: Tensor) -> int:
        """The index of the rate whose choosing probe is best on the held-out images, each process giving its shard."""
        scores = [self._accuracy(probe, features, labels).top1 for probe in range(len(self.rates))]
        return scores.index(max(scores))

    def accuracies(self, features: Tensor, labels: Tensor) -> list[Accuracy]:
        """Of the probes that saw all images, one per rate; each process gives its shard of the images."""
        return [self._accuracy(len(self.rates) + rate, features, labels) for rate in range(len(self.rates))]

    def reported(self, rate: int) -> tuple[Tensor, Tensor]:
        """Weight (K, D) and bias (K,) of the probe of a rate that saw all images, on the CPU."""
        probe = len(self.rates) + rate
        return self.weight[probe].detach().clone().cpu(), self.bias[probe].detach().clone().cpu()

    def predicted(self, rate: int, features: Tensor) -> Tensor:
        """The classes (B,) of images by the probe of a rate that saw all images."""
        return torch.cat([scores.argmax(dim=-1) for scores in self._scores(len(self.rates) + rate, features)])

    def _accuracy(self, probe: int, features: Tensor, labels: Tensor) -> Accuracy:
        chunks = zip(self._scores(probe, features), labels.split(CHUNK), strict=True)
        hits = torch.cat([ranked_hits(scores, truth.to(scores.device)) for scores, truth in chunks])
        return Accuracy.of(gather_rows(hits).cpu())

    @torch.no_grad()
    def _scores(self, probe: int, features: Tensor) -> Iterator[Tensor]:
        """The logits of one probe, chunk by chunk: at ImageNet's size, all at once would fill the memory.

        The features may be on another device than the probes.
        """
        for chunk in features.split(CHUNK):
            yield F.linear(chunk.to(self.weight.device), self.weight[probe], self.bias[probe])


class Batch(NamedTuple):
    """The process's shard of a batch; of features in memory, those that it has, which may be none."""

    features: Tensor  # (B, D)
    labels: Tensor  # (B,)
    held_out: Tensor  # (B,) bool


class ProbeLearner:
    """SGD with momentum 0.9, no weight decay and a cosine schedule, each probe at its own rate.

    Written by hand: torch.optim would need one parameter, and one matrix product, per probe.
    """

    def __init__(self, probes: Probes, *, batch_size: int, total_steps: int):
        self.probes, self.total_steps = probes, total_steps
        self.device = probes.weight.device
        self.module = parallel(probes, self.device)
        self.rates = torch.tensor(probes.rates * 2, device=self.device) * batch_size / 256  # (P,)
        self.momenta = [torch.zeros_like(p) for p in probes.parameters()]

    def step(self, batch: Batch, step: int) -> dict[str, float]:
        """Update every probe, unless one is not finite; returns the loss of each rate."""
        self.module.zero_grad()
        batch = Batch(*(tensor.to(self.device) for tensor in batch))
        counts = torch.stack([(~batch.held_out).sum(), torch.ones_like(batch.held_out).sum()]).float()
        losses = self.module(*batch, mean_over_processes(counts))  # (P,)
        losses.sum().backward()
        numbers = self._finite_losses(losses.detach(), step)
        rates = self.rates * cosine(step, self.total_steps, start=1.0, end=0.0)
        with torch.no_grad():
            for parameter, momentum in zip(self.probes.parameters(), self.momenta, strict=True):
                assert parameter.grad is not None
                momentum.mul_(0.9).add_(parameter.grad)
                parameter.sub_(rates.view(-1, *[1] * (parameter.ndim - 1)) * momentum)
        return numbers

    def _finite_losses(self, losses: Tensor, step: int) -> dict[str, float]:
        """The losses of the probes that see all images, by rate; refuses rates whose loss or gradient is not finite."""
        norms = torch.stack([p.grad.flatten(1).norm(dim=1) for p in self.probes.parameters() if p.grad is not None])
        checked = torch.cat([losses.unsqueeze(0), norms])  # (3, P)
        found: list[list[float]] = mean_over_processes(checked).T.tolist()
        names = [f"{rate:g}" for rate in self.probes.rates]
        diverged = {name for name, values in zip(names * 2, found, strict=True) if not all(map(math.isfinite, values))}
        if diverged:
            listed = ", ".join(name for name in names if name in diverged)
            raise NotFiniteError(
                f"The probes at rate {listed} are no longer finite at step {step}; omit these from --rates."
            )
        reported = [values[0] for values in found[len(names) :]]
        each = {f"loss/rate {name}": loss for name, loss in zip(names, reported, strict=True)}
        return {"lowest_loss": min(reported), **each}

    def state_dict(self) -> dict[str, Any]:
        """Probes and momenta."""
        return {"probes": self.probes.state_dict(), "momenta": self.momenta}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self.probes.load_state_dict(state["probes"])
        for momentum, saved in zip(self.momenta, state["momenta"], strict=True):
            momentum.copy_(saved)
