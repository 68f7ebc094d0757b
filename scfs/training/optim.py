from typing import Any

import torch
from timm.optim.lars import Lars
from torch import Tensor, nn


def parameter_groups(module: nn.Module) -> list[dict[str, Any]]:
    """Two groups: weights, which decay, and biases and norms, which do not (as in DINO)."""
    trainable = [p for p in module.parameters() if p.requires_grad]
    return [
        {"params": [p for p in trainable if p.ndim > 1], "decays": True},
        {"params": [p for p in trainable if p.ndim <= 1], "decays": False, "weight_decay": 0.0},
    ]


def build_optimizer(name: str, module: nn.Module, *, nesterov: bool = False) -> torch.optim.Optimizer:
    """SGD, LARS or Muon with momentum 0.9, or AdamW; rate and decay are set before each step by `set_rates`.

    nesterov: for SGD's momentum.
    """
    groups = parameter_groups(module)
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
        decaying, others = groups
        return Lars([{**decaying, "always_adapt": True}, {**others, "always_adapt": False}], lr=0.0, momentum=0.9)
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
        group["lr"] = lr
        if group["decays"]:
            group["weight_decay"] = weight_decay
