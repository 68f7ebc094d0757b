from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from scfs.training.gradients import NotFiniteError

SKIPPED = "skipped_steps"
MIN_SCALE = 2.0**-8  # of the loss in float16, which starts at 2^16 and halves at each overflow


class Precision:
    """The arithmetic of a step: float32, or half precision where autocast considers it safe.

    float16 underflows, so its loss is scaled up, and a step whose gradients overflow is skipped.
    """

    def __init__(self, name: str, device: torch.device):
        self.dtype = getattr(torch, name)
        self.device = device
        self.scaler = torch.amp.GradScaler(device.type, enabled=name == "float16")
        self.num_skipped = 0  # steps

    def autocast(self) -> AbstractContextManager[Any]:
        """Within it, convolutions and matrix products run in the chosen type."""
        return torch.autocast(self.device.type, dtype=self.dtype, enabled=self.dtype != torch.float32)

    def backward(self, loss: Tensor) -> None:
        """Gradients of a loss, scaled if need be."""
        self.scaler.scale(loss).backward()

    def unscale(self, optimizer: torch.optim.Optimizer) -> None:
        """Undo the scaling of the gradients, before they are clipped."""
        self.scaler.unscale_(optimizer)

    @property
    def scales_loss(self) -> bool:
        """Whether the loss is scaled up, so that gradients may overflow now and then."""
        return self.scaler.is_enabled()

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        """Update the parameters, whose gradients have been unscaled and found to be finite."""
        optimizer.step()  # not `scaler.step`, which with some optimizers waits for a GPU to check that again
        self.scaler.update()

    def skip(self, optimizer: torch.optim.Optimizer) -> None:
        """Skip a step whose scaled gradients overflowed: nothing is updated, and the scale is lowered."""
        optimizer.zero_grad(set_to_none=True)
        self.scaler.update()
        self.num_skipped += 1
        if self.scaler.get_scale() < MIN_SCALE:
            raise NotFiniteError(
                "Gradients overflow float16 in every step, however little the loss is scaled; choose bfloat16 or "
                "float32, or lower the learning rate."
            )

    def state_dict(self) -> dict[str, Any]:
        """The scale, its history and the number of skipped steps; empty without scaling."""
        return {**self.scaler.state_dict(), SKIPPED: self.num_skipped} if self.scales_loss else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        if state:
            self.num_skipped = int(state.get(SKIPPED, 0))
            self.scaler.load_state_dict({name: value for name, value in state.items() if name != SKIPPED})


def has_native_bfloat16(device: torch.device) -> bool:
    """Whether the device supports bfloat16 natively; elsewhere it may be emulated, and slower than float32."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    capabilities: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()  # missing in older versions of torch
    return device.type == "cpu" and any(capabilities.get(name) for name in ("avx512_bf16", "amx_bf16"))
