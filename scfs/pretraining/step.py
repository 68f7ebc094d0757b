from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from scfs.config import Config
from scfs.data.loader import LoadedViews, derive_seed
from scfs.data.views import normalize_views
from scfs.distributed import mean_over_processes, no_sync, rank, sum_over_processes
from scfs.method.heads import ProjectionHead
from scfs.method.losses import spread
from scfs.method.scfs import SCFS, Output
from scfs.training.gradients import Clip
from scfs.training.optim import load_optimizer, set_rates
from scfs.training.precision import Precision
from scfs.training.schedules import cosine, linear_warmup
from scfs.training.update import update
from scfs.view_batch import ViewBatch

NOT_FINITE = "start a new run with a lower optim.lr or a longer optim.warmup_epochs"


class StepSchedule(NamedTuple):
    """The scheduled values of one step."""

    step: int
    lr: float
    weight_decay: float
    teacher_temp: float
    momentum: float
    last_layer_frozen: bool

    def rates(self) -> dict[str, float]:
        """The values to log."""
        names = ("lr", "weight_decay", "teacher_temp", "momentum")
        return {name: getattr(self, name) for name in names}


def schedule_at(config: Config, step: int, steps_per_epoch: int) -> StepSchedule:
    """Every schedule at a step, from resolved settings: a pure function, so a resumed run continues exactly."""
    method, optim = config.method, config.optim
    total = optim.num_epochs * steps_per_epoch
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
class PretrainLearner:
    """Student, teacher and centers, and what updates them."""

    method: SCFS
    parallel: nn.Module  # the method, or the method wrapped so that processes average gradients
    optimizer: torch.optim.Optimizer
    precision: Precision
    schedule: Callable[[int], StepSchedule]
    clip: Clip = "per-tensor"
    clip_norm: float = 3.0
    seed: int = 0
    channels_last: bool = True  # the memory layout of the views, as the loader makes them

    def step(self, batch: Sequence[LoadedViews], step: int) -> dict[str, float]:
        """A step on the micro-batches of this process; returns losses, diagnostics and rates, as logged."""
        torch.manual_seed(derive_seed(self.seed, step, rank()))  # drop path
        schedule = self.schedule(step)
        return self.update([micro_batch.views for micro_batch in batch], schedule) | schedule.rates()

    def update(self, micro_batches: Sequence[ViewBatch], schedule: StepSchedule) -> dict[str, float]:
        """Update student, centers and teacher, unless the loss or a gradient is not finite.

        Returns losses and diagnostics by name, over all micro-batches and processes. In float16 a step whose scaled
        gradients overflow is skipped: parameters and centers stay as they are (batch-norm statistics have moved).
        """
        method, optimizer, precision = self.method, self.optimizer, self.precision
        set_rates(optimizer, lr=schedule.lr, weight_decay=schedule.weight_decay)
        optimizer.zero_grad(set_to_none=True)
        values = self._backward(micro_batches, schedule.teacher_temp)
        if schedule.last_layer_frozen and isinstance(method.student.head, ProjectionHead):
            method.student.head.last.weight.grad = None
        numbers, updated = update(
            method.student,
            optimizer,
            precision,
            values,
            step=schedule.step,
            remedy=NOT_FINITE,
            clip=self.clip,
            clip_norm=self.clip_norm,
        )
        if not updated:
            for center in method.centers():
                center.discard()
            return numbers
        sum_over_processes(center.pending for center in method.centers())
        for center in method.centers():
            center.commit()
        method.update_teacher(schedule.momentum)
        return numbers

    def _backward(self, micro_batches: Sequence[ViewBatch], teacher_temp: float) -> dict[str, Tensor]:
        """Accumulate gradients over micro-batches, synchronising processes at the last; returns named scalars."""
        count = len(micro_batches)
        scalars: list[dict[str, Tensor]] = []
        spread_of: list[dict[str, Tensor]] = []
        for number, batch in enumerate(micro_batches, start=1):
            with nullcontext() if number == count else no_sync(self.parallel):
                losses, diagnostics, outputs = self._forward(batch, teacher_temp)
                loss = torch.stack(list(losses.values())).sum()
                if count > 1:
                    spread_of.append(outputs)
                del outputs  # large, and no longer needed
                self.precision.backward(loss * (1 / count))
            named = {"loss": loss, **{f"loss/{name}": value for name, value in losses.items()}, **diagnostics}
            scalars.append({name: value.detach() for name, value in named.items()})
        means = torch.stack([torch.stack(list(each.values())) for each in scalars]).mean(dim=0)
        values = dict(zip(scalars[0], means, strict=True))
        for name in spread_of[0] if spread_of else ():  # a batch's spread is not the mean over micro-batches
            values[name] = spread(torch.cat([each[name] for each in spread_of], dim=-2), mean_over_processes)
        return values

    def _forward(self, batch: ViewBatch, teacher_temp: float) -> Output:
        views = normalize_views(batch.to(self.precision.device))
        views = views if self.channels_last else views.contiguous()
        with self.precision.autocast():
            output: Output = self.parallel(views, teacher_temp)
        return output

    def state_dict(self) -> dict[str, Any]:
        """Networks, centers, optimizer and loss scale: all that a step changes."""
        return {
            "method": self.method.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "precision": self.precision.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self.method.load_state_dict(state["method"])
        load_optimizer(self.optimizer, state["optimizer"])
        self.precision.load_state_dict(state["precision"])
