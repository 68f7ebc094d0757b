import math
from typing import NamedTuple

import torch

from scfs.config import Config
from scfs.data.views import ViewBatch
from scfs.engine.optim import clip_gradients, set_rates
from scfs.engine.schedules import cosine, linear
from scfs.errors import UserError
from scfs.method.scfs import SCFS


class Now(NamedTuple):
    """What the schedules say of one step."""

    step: int
    lr: float
    weight_decay: float
    teacher_temp: float
    momentum: float
    last_layer_frozen: bool

    def rates(self) -> dict[str, float]:
        """What is worth logging."""
        names = ("lr", "weight_decay", "teacher_temp", "momentum")
        return {name: getattr(self, name) for name in names}


def schedule(config: Config, step: int, steps_per_epoch: int) -> Now:
    """Every schedule at a step, from resolved settings: a pure function, so a resumed run goes on exactly."""
    method, optim = config.method, config.optim
    total = optim.epochs * steps_per_epoch
    decay = optim.weight_decay
    final_decay = decay if optim.final_weight_decay == "same" else optim.final_weight_decay
    return Now(
        step=step,
        lr=cosine(
            step,
            total,
            start=optim.peak_lr,
            end=optim.final_lr,
            warmup_steps=round(float(optim.warmup_epochs) * steps_per_epoch),
        ),
        weight_decay=cosine(step, total, start=decay, end=final_decay),
        teacher_temp=linear(
            step,
            int(method.teacher_temp_warmup_epochs) * steps_per_epoch,
            start=method.teacher_temp_start,
            end=float(method.teacher_temp),
        ),
        momentum=cosine(step, total, start=float(method.momentum), end=1.0),
        last_layer_frozen=step < method.freeze_last_layer_epochs * steps_per_epoch,
    )


def train_step(
    method: SCFS, batch: ViewBatch, optimizer: torch.optim.Optimizer, now: Now, *, clip: str, clip_norm: float
) -> dict[str, float]:
    """One update of student, centers and teacher. Returns the losses and vitals by name, as logged."""
    set_rates(optimizer, lr=now.lr, weight_decay=now.weight_decay)
    optimizer.zero_grad(set_to_none=True)
    losses, vitals = method(batch, now.teacher_temp)
    loss = torch.stack(list(losses.values())).sum()
    if not math.isfinite(loss.item()):  # before anything moves
        raise UserError(
            f"The loss became {loss.item()} at step {now.step}; lower optim.lr or lengthen optim.warmup_epochs, "
            "and start again or resume from the last checkpoint."
        )
    loss.backward()
    if now.last_layer_frozen and method.student.head is not None:
        method.student.head.last.weight.grad = None
    clip_gradients(method.student.parameters(), clip, clip_norm)
    optimizer.step()
    for center in method.centers():
        center.commit()
    method.update_teacher(now.momentum)
    named = {"loss": loss, **{f"loss/{name}": value for name, value in losses.items()}, **vitals}
    return {name: value.item() for name, value in named.items()}
