"""Batch norms over the batches of all processes."""

from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from scfs.distributed import sum_with_gradient, world_size

M = TypeVar("M", bound=nn.Module)


def sync_batch_norms(module: M, device: torch.device) -> M:
    """Make batch norms use the batches of all processes: torch's on GPUs, ours on CPUs, which torch's refuses."""
    if world_size() == 1:
        return module
    if device.type == "cuda":
        # torch's own would drop the activations inside timm's norms
        from timm.layers.norm_act import convert_sync_batchnorm

        converted: M = convert_sync_batchnorm(module)
        return converted
    for parent in list(module.modules()):
        for name, child in parent.named_children():
            if isinstance(child, _BatchNorm):
                setattr(parent, name, CpuSyncBatchNorm.like(child))
    return module


class CpuSyncBatchNorm(_BatchNorm):
    """Batch norm over the batches of all processes, for CPUs: `nn.SyncBatchNorm` works on GPUs only."""

    @classmethod
    def like(cls, norm: _BatchNorm) -> "CpuSyncBatchNorm":
        """The same norm with the same parameters and statistics, synchronised."""
        synchronised = cls(norm.num_features, norm.eps, norm.momentum, norm.affine, norm.track_running_stats)
        synchronised.__dict__.update(norm.__dict__)
        return synchronised

    def _check_input_dim(self, input: Tensor) -> None:
        if input.ndim < 2:
            raise ValueError(f"batch norm needs a batch and channels, not shape {tuple(input.shape)}")

    def forward(self, input: Tensor) -> Tensor:
        """(B, C, ...) -> (B, C, ...), normalised with the mean and variance over all processes.

        timm's norms also apply their dropout and activation.
        """
        out = self._normalize(input) if self.training else super().forward(input)
        for name in ("drop", "act"):
            if name in self._modules:
                out = getattr(self, name)(out)
        return out

    def _normalize(self, input: Tensor) -> Tensor:
        axes = [axis for axis in range(input.ndim) if axis != 1]
        shape = [1, -1] + [1] * (input.ndim - 2)
        wide = input.to(torch.promote_types(input.dtype, torch.float32))  # half precision cannot hold large counts
        count = wide.new_tensor([input.numel() / input.shape[1]])
        total = sum_with_gradient(torch.cat([wide.sum(axes), count]))
        count = total[-1].detach()
        mean = total[:-1] / count
        centered = wide - mean.view(shape)
        variance = sum_with_gradient(centered.square().sum(axes)) / count
        self._track(mean.detach(), (variance * count / (count - 1)).detach())
        scale = torch.rsqrt(variance + self.eps)
        scale = scale if self.weight is None else scale * self.weight
        out = centered * scale.view(shape)
        return (out if self.bias is None else out + self.bias.view(shape)).to(input.dtype)

    def _track(self, mean: Tensor, variance: Tensor) -> None:
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return  # they are not tracked
        self.num_batches_tracked += 1
        weight = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean, weight)
        self.running_var.lerp_(variance, weight)
