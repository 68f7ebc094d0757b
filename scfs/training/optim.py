from typing import Any, NamedTuple

import torch
from timm.optim.lars import Lars
from torch import Tensor, nn


class OwnRate(NamedTuple):
    """A part of a network whose learning rate is this many times that of the rest."""

    part: nn.Module
    lr_scale: float


def parameter_groups(module: nn.Module, own_rate: OwnRate | None = None) -> list[dict[str, Any]]:
    """Two groups: weights, which decay, and biases and norms, which do not (as in DINO); two more for another rate."""
    trainable = [p for p in module.parameters() if p.requires_grad]
    if own_rate is None or own_rate.lr_scale == 1:
        return _by_decay(trainable)
    inside = {*own_rate.part.parameters()}
    part, rest = [p for p in trainable if p in inside], [p for p in trainable if p not in inside]
    return [*_by_decay(rest), *({**group, "lr_scale": own_rate.lr_scale} for group in _by_decay(part))]


def _by_decay(parameters: list[nn.Parameter]) -> list[dict[str, Any]]:
    return [
        {"params": [p for p in parameters if p.ndim > 1], "decays": True},
        {"params": [p for p in parameters if p.ndim <= 1], "decays": False, "weight_decay": 0.0},
    ]


def build_optimizer(
    name: str, module: nn.Module, *, own_rate: OwnRate | None = None, nesterov: bool = False
) -> torch.optim.Optimizer:
    """SGD, LARS or Muon with momentum 0.9, or AdamW; rate and decay are set before each step by `set_rates`.

    nesterov: for SGD's momentum.
    """
    groups = parameter_groups(module, own_rate)
    if name == "sgd":
        sgd = torch.optim.SGD(groups, lr=0.0, momentum=0.9, nesterov=nesterov, fused=True)
        for parameter in (p for group in groups for p in group["params"]):
            # The same as torch's: but all must have one at once, and a frozen layer's would come later.
            sgd.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
        return sgd
    if name == "muon":
        # Orthogonalised momentum for weight matrices; NAdamW at a fifth of the rate for the rest.
        from timm.optim.muon import Muon

        return Muon(
            groups,
            lr=0.0,
            momentum=0.9,
            nesterov=True,
            adjust_lr_fn="original",
            betas=(0.9, 0.99),
            fallback_lr_scale=0.2,
        )
    if name == "lars":
        # As in DINO, the rates of weights are adapted, whatever their decay is now, and those of biases and norms are
        # not; timm's default adapts a group only while it decays.
        return Lars([{**group, "always_adapt": group["decays"]} for group in groups], lr=0.0, momentum=0.9)
    return torch.optim.AdamW(groups, lr=0.0, fused=True)


def load_optimizer(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Load a saved state with the memory layout of the parameters, as fused kernels require."""
    optimizer.load_state_dict(state)
    for parameter, values in optimizer.state.items():
        for name, value in values.items():
            if isinstance(value, Tensor) and value.shape == parameter.shape:
                values[name] = torch.empty_like(parameter).copy_(value)


def set_rates(optimizer: torch.optim.Optimizer, *, lr: float, weight_decay: float) -> None:
    """The learning rate of every group, and the weight decay of those that decay."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group.get("lr_scale", 1)
        if group["decays"]:
            group["weight_decay"] = weight_decay
