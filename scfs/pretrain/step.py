import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from scfs.config import Config
from scfs.data.views import normalize_views
from scfs.distributed import mean_over_processes, sum_over_processes, unsynchronised
from scfs.errors import UserError
from scfs.method.heads import ProjectionHead
from scfs.method.scfs import SCFS
from scfs.training.optim import clip_gradients, load_optimizer, set_rates
from scfs.training.precision import Precision
from scfs.training.schedules import cosine, linear_warmup
from scfs.view_batch import ViewBatch


class StepSchedule(NamedTuple):
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


def schedule_at(config: Config, step: int, steps_per_epoch: int) -> StepSchedule:
    """Every schedule at a step, from resolved settings: a pure function, so a resumed run goes on exactly."""
    method, optim = config.method, config.optim
    total = optim.epochs * steps_per_epoch
    decay = optim.weight_decay
    final_decay = decay if optim.final_weight_decay == "same" else optim.final_weight_decay
    final_momentum = float(method.momentum if method.final_momentum == "same" else method.final_momentum)
    return StepSchedule(
        step=step,
        lr=cosine(
            step,
            total,
            start=optim.peak_lr,
            end=optim.final_lr,
            warmup_steps=round(float(optim.warmup_epochs) * steps_per_epoch),
        ),
        weight_decay=cosine(step, total, start=decay, end=final_decay),
        teacher_temp=linear_warmup(
            step,
            int(method.teacher_temp_warmup_epochs) * steps_per_epoch,
            start=method.teacher_temp_start,
            end=float(method.teacher_temp),
        ),
        momentum=cosine(step, total, start=float(method.momentum), end=final_momentum),
        last_layer_frozen=step < method.freeze_last_layer_epochs * steps_per_epoch,
    )


@dataclass(frozen=True)
class Learner:
    """What learns, and how it moves."""

    method: SCFS
    parallel: nn.Module  # the method, or the method wrapped so that processes share gradients
    optimizer: torch.optim.Optimizer
    precision: Precision

    def state_dict(self) -> dict[str, Any]:
        """Networks, centers, optimizer and loss scale: all that moves."""
        return {
            "method": self.method.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "precision": self.precision.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put everything back as it was."""
        self.method.load_state_dict(state["method"])
        load_optimizer(self.optimizer, state["optimizer"])
        self.precision.load_state_dict(state["precision"])


def train_step(
    learner: Learner, batches: Sequence[ViewBatch], schedule: StepSchedule, *, clip: str, clip_norm: float
) -> dict[str, float]:
    """One update of student, centers and teacher from one or more parts of a batch.

    Returns the losses and diagnostics by name, as logged: means over the parts and over all processes.
    """
    method, optimizer, precision = learner.method, learner.optimizer, learner.precision
    set_rates(optimizer, lr=schedule.lr, weight_decay=schedule.weight_decay)
    optimizer.zero_grad(set_to_none=True)
    parts = [
        _backward(learner, batch, schedule.teacher_temp, share=1 / len(batches), last=i == len(batches))
        for i, batch in enumerate(batches, start=1)
    ]
    means = mean_over_processes(torch.stack([torch.stack(list(part.values())) for part in parts]).mean(dim=0))
    numbers = dict(zip(parts[0], means.tolist(), strict=True))
    if not math.isfinite(numbers["loss"]):  # before anything moves
        raise UserError(
            f"The loss became {numbers['loss']} at step {schedule.step}; lower optim.lr or lengthen "
            "optim.warmup_epochs, and start again or resume from the last checkpoint."
        )
    if schedule.last_layer_frozen and isinstance(method.student.head, ProjectionHead):
        method.student.head.last.weight.grad = None
    precision.unscale(optimizer)
    clip_gradients(method.student.parameters(), clip, clip_norm)
    precision.step(optimizer)
    sum_over_processes(center.pending for center in method.centers())
    for center in method.centers():
        center.commit()
    method.update_teacher(schedule.momentum)
    return numbers


def _backward(
    learner: Learner, batch: ViewBatch, teacher_temp: float, *, share: float, last: bool
) -> dict[str, Tensor]:
    """Add the gradients of one part of a batch; processes meet after the last part only."""
    views = normalize_views(batch.to(learner.precision.device))
    with nullcontext() if last else unsynchronised(learner.parallel):
        with learner.precision.autocast():
            losses, diagnostics = learner.parallel(views, teacher_temp)
        loss = torch.stack(list(losses.values())).sum()
        learner.precision.backward(loss * share)
    named = {"loss": loss, **{f"loss/{name}": value for name, value in losses.items()}, **diagnostics}
    return {name: value.detach() for name, value in named.items()}
