from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scfs.data.segmentation import VOID
from scfs.distributed import mean_over_processes, parallel, sum_over_processes
from scfs.training.gradients import Gradients, check_finite
from scfs.training.optim import build_optimizer, set_rates
from scfs.training.schedules import cosine

# B images, C channels, h w map height and width, H W that of label maps, K classes

WEIGHT_DECAY = 1e-4


class ChannelStatistics:
    """Mean and standard deviation of each channel over the positions of all images, in all processes."""

    def __init__(self, num_channels: int, device: torch.device):
        self.sums = torch.zeros(3, num_channels, dtype=torch.float64, device=device)  # of 1, values and squares

    def add(self, maps: Tensor) -> None:
        """Count the maps (B, C, h, w) of some images."""
        values = maps.movedim(1, 0).flatten(1).double()  # (C, B h w)
        self.sums += torch.stack([torch.ones_like(values).sum(dim=1), values.sum(dim=1), values.square().sum(dim=1)])

    def build(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation (C,)."""
        sum_over_processes([self.sums])
        count, total, squares = self.sums
        mean = total / count
        return mean.float(), (squares / count - mean.square()).clamp(min=1e-12).sqrt().float()


class LinearLayer(nn.Module):
    """A 1 x 1 convolution on maps whose channels are standardised."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Tensor, std: Tensor, num_classes: int):
        super().__init__()
        self.register_buffer("mean", mean.view(-1, 1, 1))
        self.register_buffer("std", std.view(-1, 1, 1))
        self.conv = nn.Conv2d(len(mean), num_classes, kernel_size=1)
        for parameter in self.conv.parameters():
            nn.init.zeros_(parameter)

    def forward(self, maps: Tensor) -> Tensor:
        """maps: (B, C, h, w) -> logits (B, K, h, w)."""
        logits: Tensor = self.conv((maps - self.mean) / self.std)
        return logits


class Batch(NamedTuple):
    """The process's shard of a batch."""

    maps: Tensor  # (B, C, h, w)
    labels: Tensor  # (B, H, W) uint8; void is not trained on


class LayerLearner:
    """Trains a linear layer by cross entropy, with logits upsampled to the labels.

    SGD with momentum 0.9 and a cosine schedule to 0.

    alone: every process has all the images of a batch, so that gradients are not averaged.
    """

    def __init__(self, layer: LinearLayer, *, lr: float, total_steps: int, alone: bool):
        self.layer, self.lr, self.total_steps, self.alone = layer, lr, total_steps, alone
        self.device = layer.mean.device
        self.module = layer if alone else parallel(layer, self.device)
        self.optimizer = build_optimizer("sgd", layer)

    def step(self, batch: Batch, step: int) -> dict[str, float]:
        """Take a step on this process's images, unless the loss or a gradient is not finite."""
        rate = cosine(step, self.total_steps, start=self.lr, end=0.0)
        set_rates(self.optimizer, lr=rate, weight_decay=WEIGHT_DECAY)
        maps, labels = (tensor.to(self.device, non_blocking=True) for tensor in batch)
        logits = F.interpolate(self.module(maps), labels.shape[-2:], mode="bilinear", align_corners=False)
        count = (labels != VOID).sum().float()
        count = (count if self.alone else mean_over_processes(count)).clamp(min=1)
        loss = F.cross_entropy(logits, labels.long(), ignore_index=VOID, reduction="sum") / count
        self.optimizer.zero_grad()
        loss.backward()
        gradients = Gradients(self.layer.named_parameters())
        numbers, *_ = check_finite({"loss": loss.detach()}, gradients, step=step, remedy="lower --lr")
        self.optimizer.step()
        return numbers | {"lr": rate}

    def state_dict(self) -> dict[str, Any]:
        """Layer and optimizer."""
        return {"layer": self.layer.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        for name, saved in state.items():
            getattr(self, name).load_state_dict(saved)
