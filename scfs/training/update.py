from collections.abc import Mapping

import torch
from torch import Tensor, nn

from scfs.training.gradients import Clip, Gradients, check_finite
from scfs.training.precision import Precision


def update(
    module: nn.Module,
    optimizer: torch.optim.Optimizer,
    precision: Precision,
    values: Mapping[str, Tensor],
    *,
    step: int,
    remedy: str,
    clip: Clip = "off",
    clip_norm: float = 0.0,
) -> tuple[dict[str, float], bool]:
    """Update a module by the gradients of its parameters, unless its `loss` or a gradient is not finite.

    values: scalars by name. Returns their means over all processes, and whether the module was updated: in float16 a
    step whose scaled gradients overflow is skipped.
    """
    precision.unscale(optimizer)
    gradients = Gradients(module.named_parameters())
    numbers, norms, overflowed = check_finite(
        values, gradients, step=step, remedy=remedy, may_overflow=precision.scales_loss
    )
    if overflowed:
        precision.skip(optimizer)
    if precision.scales_loss:
        numbers["skipped_steps"] = precision.num_skipped
    if overflowed:
        return numbers, False
    gradients.clip(clip, clip_norm, norms)
    precision.step(optimizer)
    return numbers, True
