"""The training loop: pre-training, linear probes and fine-tuning all run in it.

It takes a learner, batches, a plan and hooks, and does what every training needs: show progress, log, evaluate, save,
and stop on request after a finished step. Whether a step is finite is checked by the learner, before anything moves
(`scfs.training.gradients`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from rich.console import Console

from scfs.distributed import on_rank_zero, sum_counts
from scfs.runs.metric import Metric
from scfs.runs.metrics_log import LogRow, MetricsLog, metrics_row
from scfs.training.interrupt import Interrupt
from scfs.training.progress import ProgressDisplay

Batch = TypeVar("Batch")
BatchIn = TypeVar("BatchIn", contravariant=True)
Numbers = Mapping[str, float]


class Learner(Protocol[BatchIn]):
    """What learns from batches and can be saved."""

    def step(self, batch: BatchIn, step: int) -> Numbers:
        """Take a step, unless its loss or gradients are not finite; returns numbers to log."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


@dataclass(frozen=True)
class TrainingPlan:
    """How long something is trained, what is shown of it, and how it goes on after a stop."""

    steps_per_epoch: int
    total_steps: int
    batch_size: int  # over all processes
    first_step: int = 0  # steps that were done before
    log_every_steps: int = 1
    title: str = ""
    shown: Callable[[str], bool] = lambda name: name.endswith("loss")  # which of the numbers
    how_to_go_on: str = "it starts anew"
    more_follows: bool = False  # after the last step, so that a stop then must not pass unnoticed

    @property
    def epochs(self) -> int:
        """The last one may be incomplete."""
        return -(-self.total_steps // self.steps_per_epoch)

    def heading(self, done: int) -> str:
        """Where a training is after a number of steps."""
        epoch = (done - 1) // self.steps_per_epoch + 1
        return f"{self.title}  epoch {epoch}/{self.epochs}  step {done}/{self.total_steps}".strip()


@dataclass(frozen=True)
class Hooks(Generic[Batch]):
    """What a training does besides its steps, given the number of steps that are done; all processes call them."""

    watch: Callable[[int, Batch, Numbers, ProgressDisplay], None] = lambda *_: None
    evaluate: Callable[[int, ProgressDisplay], Sequence[Metric]] = lambda *_: ()  # empty where none is due
    save_due: Callable[[int], bool] = lambda _: False  # in any process
    save: Callable[[int], None] = lambda _: None  # a state to resume from
    keep: Callable[[int], None] = lambda _: None  # a checkpoint that stays


def train(
    learner: Learner[Batch],
    batches: Iterator[Batch],
    plan: TrainingPlan,
    hooks: Hooks[Batch],
    *,
    log: MetricsLog,
    console: Console,
) -> None:
    """Train on the batches that are still to do.

    The state is saved when it is due, after the last step and before a stop, which comes as a KeyboardInterrupt.
    """

    def write(row: LogRow) -> None:
        on_rank_zero(lambda: log.write(row))  # a full disk ends all processes

    def evaluate(done: int) -> None:
        if metrics := hooks.evaluate(done, display):
            write(metrics_row(done, done / plan.steps_per_epoch, metrics))

    with Interrupt() as interrupt, ProgressDisplay(console, plan.total_steps, plan.first_step) as display:
        if plan.first_step == 0:
            evaluate(0)
        display.start_clock()
        for step, batch in zip(range(plan.first_step, plan.total_steps), batches, strict=False):
            done, last = step + 1, step + 1 == plan.total_steps
            numbers = dict(learner.step(batch, step))
            numbers["images_per_second"] = plan.batch_size / display.advance(done)
            display.show(plan.heading(done), {name: value for name, value in numbers.items() if plan.shown(name)})
            hooks.watch(done, batch, numbers, display)
            if last or done % plan.log_every_steps == 0:
                write({"step": done, "epoch": done / plan.steps_per_epoch, **numbers})
            evaluate(done)
            stop, save_due = sum_counts(interrupt.requested, hooks.save_due(done))
            if last or stop or save_due:
                hooks.save(done)
            hooks.keep(done)
            if stop and (plan.more_follows or not last):
                raise KeyboardInterrupt(f"Stopped after step {done}; {plan.how_to_go_on}.")
            display.start_clock()
