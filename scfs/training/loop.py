"""The training loop: pre-training, linear probes and fine-tuning all run in it.

It takes a learner, batches, a plan and hooks, and does what every training needs: show progress, log, evaluate, save,
and stop on request after a finished step. The learner checks that a step is finite before it updates anything
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
    """Something that is trained on batches and can be saved."""

    def step(self, batch: BatchIn, step: int) -> Numbers:
        """Take a step, unless its loss or gradients are not finite; returns numbers to log."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


@dataclass(frozen=True)
class TrainingPlan:
    """How long to train, what to show, and how to resume after a stop."""

    steps_per_epoch: int
    total_steps: int
    batch_size: int  # over all processes
    first_step: int = 0  # steps already done
    evaluated: bool = False  # whether the evaluation after them, if one was due, was done too
    log_every_steps: int = 1
    title: str = ""
    shown: Callable[[str], bool] = lambda name: name.endswith("loss")  # which of the numbers
    how_to_resume: str = "it starts again from the beginning"
    more_follows: bool = False  # work after the last step, so that a stop in it must be raised

    @property
    def epochs(self) -> int:
        """Number of epochs; the last may be incomplete."""
        return -(-self.total_steps // self.steps_per_epoch)

    def heading(self, done: int) -> str:
        """The epoch and step of a training after `done` steps."""
        epoch = (done - 1) // self.steps_per_epoch + 1
        return f"{self.title}  epoch {epoch}/{self.epochs}  step {done}/{self.total_steps}".strip()


@dataclass(frozen=True)
class Hooks(Generic[Batch]):
    """What a training does besides its steps. All processes call them, with the number of steps done."""

    watch: Callable[[int, Batch, Numbers, ProgressDisplay], None] = lambda *_: None
    evaluation_due: Callable[[int], bool] = lambda _: False
    evaluate: Callable[[int, ProgressDisplay], Sequence[Metric]] = lambda *_: ()  # empty if there is nothing to log
    save_due: Callable[[int], bool] = lambda _: False  # in any process
    save: Callable[[int], None] = lambda _: None  # a state to resume from
    keep: Callable[[int], None] = lambda _: None  # an extra checkpoint that is not overwritten


def train(
    learner: Learner[Batch],
    batches: Iterator[Batch],
    plan: TrainingPlan,
    hooks: Hooks[Batch],
    *,
    log: MetricsLog,
    console: Console,
) -> None:
    """Train on the remaining batches.

    The state is saved when it is due, before an evaluation, which may take long, after the last step and before a stop,
    which raises a KeyboardInterrupt. A stop comes before an evaluation, which the resumed training then does first.
    """

    def write(row: LogRow) -> None:
        on_rank_zero(lambda: log.write(row))  # a full disk ends all processes

    def evaluate(done: int) -> None:
        if metrics := hooks.evaluate(done, display):
            write(metrics_row(done, done / plan.steps_per_epoch, metrics))

    with Interrupt() as interrupt, ProgressDisplay(console, plan.total_steps, plan.first_step) as display:
        if hooks.evaluation_due(plan.first_step) and not plan.evaluated:
            evaluate(plan.first_step)
        display.start_clock()
        for step, batch in zip(range(plan.first_step, plan.total_steps), batches, strict=False):
            done, last = step + 1, step + 1 == plan.total_steps
            numbers = dict(learner.step(batch, step))
            numbers["images_per_second"] = plan.batch_size / display.advance(done)
            shown = {name: value for name, value in numbers.items() if plan.shown(name)}
            display.show(plan.heading(done), shown)
            hooks.watch(done, batch, numbers, display)
            if last or done % plan.log_every_steps == 0:
                write({"step": done, "epoch": done / plan.steps_per_epoch, **numbers})
            evaluation_due, can_stop = hooks.evaluation_due(done), plan.more_follows or not last
            stop, save_due = sum_counts(interrupt.requested, hooks.save_due(done))
            hooks.keep(done)  # first: a run killed in between comes here again
            if last or stop or save_due or evaluation_due:
                hooks.save(done)
            if evaluation_due and not (stop and can_stop):
                evaluate(done)
                [stop] = sum_counts(interrupt.requested)
            if last:
                display.show(plan.heading(done), shown, final=True)  # again, with the last evaluation
            if stop and can_stop:
                raise KeyboardInterrupt(f"Stopped after step {done}; {plan.how_to_resume}.")
            display.start_clock()
