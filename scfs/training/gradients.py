import math
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from scfs.distributed import mean_over_processes
from scfs.errors import UserError

Clip = Literal["per-tensor", "total", "off"]


class NotFiniteError(UserError):
    """The loss or the gradients of a step are inf or NaN; nothing has been updated yet."""


class Gradients:
    """The gradients of a step and their norms, computed once for the finite check and for clipping."""

    @torch.no_grad()
    def __init__(self, parameters: Iterable[tuple[str, Tensor]]):
        found = [(name, p.grad) for name, p in parameters if p.grad is not None]
        self.names, self.tensors = [name for name, _ in found], [gradient for _, gradient in found]
        # The public way is torch.nn.utils.get_total_norm, which gives only the total.
        self.norms = torch.stack(torch._foreach_norm(self.tensors))  # (tensors,)
        self.total_norm = torch.linalg.vector_norm(self.norms)

    @torch.no_grad()
    def clip(self, how: Clip, max_norm: float, norms: list[float]) -> None:
        """Clip the norm of each gradient (`per-tensor`, as in the released code), the total norm, or nothing.

        norms: of the gradients, on the host, as `check_finite` returns them.
        """
        if how == "total":
            scale = torch.clamp(max_norm / (self.total_norm + 1e-6), max=1.0)  # as torch.nn.utils.clip_grad_norm_
            torch._foreach_mul_(self.tensors, scale)
        elif how == "per-tensor":
            too_long = [
                (g, max_norm / (norm + 1e-6)) for g, norm in zip(self.tensors, norms, strict=True) if norm > max_norm
            ]
            if too_long:
                torch._foreach_mul_([gradient for gradient, _ in too_long], [scale for _, scale in too_long])


class Checked(NamedTuple):
    """The numbers of a step on the host, after the finite check."""

    numbers: dict[str, float]
    norms: list[float]  # of each gradient
    overflowed: bool  # only if that is allowed: the step must be skipped


@torch.no_grad()
def check_finite(
    values: Mapping[str, Tensor], gradients: Gradients, *, step: int, remedy: str, may_overflow: bool = False
) -> Checked:
    """Means of named scalars over all processes; refuses a step whose `loss` or gradients are not finite.

    All processes decide the same. The host waits for the GPU only here, for all that it needs of the step.
    may_overflow: gradients may overflow, because the loss is scaled up for float16.
    """
    means = mean_over_processes(torch.stack([*values.values(), gradients.total_norm]))
    on_host: list[float] = torch.cat([means, gradients.norms]).tolist()
    total_norm, norms = on_host[len(values)], on_host[len(values) + 1 :]
    numbers = dict(zip(values, on_host, strict=False))
    if not math.isfinite(numbers["loss"]):
        terms = [name for name, value in numbers.items() if name.startswith("loss/") and not math.isfinite(value)]
        which = f" (its term '{terms[0].removeprefix('loss/')}')" if terms else ""
        raise NotFiniteError(f"The loss{which} became {numbers['loss']} at step {step}; {remedy}.")
    overflowed = not math.isfinite(total_norm)
    if overflowed and not may_overflow:
        broken = [name for name, norm in zip(gradients.names, norms, strict=True) if not math.isfinite(norm)]
        which = f" of {broken[0]}" if broken else ""  # perhaps only those of another process
        raise NotFiniteError(
            f"The gradients{which} became {total_norm} at step {step}, at a loss of {numbers['loss']:.4g}; {remedy}."
        )
    return Checked(numbers, norms, overflowed)
