import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from rich.console import Console

from scfs.distributed import gather, on_rank_zero, sum_counts
from scfs.errors import UserError
from scfs.runs import checkpoint
from scfs.runs.resume import saved_state
from scfs.training.interrupt import Interrupt
from scfs.training.progress import ProgressDisplay

FREE = ("workers", "device")  # settings that may change on resuming
SAVE_SECONDS = 60.0  # between saved states
Batch = TypeVar("Batch", contravariant=True)


class Learner(Protocol[Batch]):
    """What learns from batches and can be saved."""

    def learn(self, batch: Batch, step: int) -> Mapping[str, float]:
        """Take a step; returns numbers to show."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


@dataclass(frozen=True)
class TrainingPlan:
    """How long something is trained, and where its state is kept meanwhile."""

    steps_per_epoch: int
    total_steps: int
    state: Path | None  # None: it cannot be resumed
    settings: dict[str, Any]
    title: str = ""

    @property
    def epochs(self) -> int:
        """The last one may be incomplete."""
        return -(-self.total_steps // self.steps_per_epoch)


def fit(
    learner: Learner[Batch], batches: Callable[[int], Iterator[Batch]], course: TrainingPlan, *, console: Console
) -> None:
    """Train on batches; `batches` gives those from a step on. Goes on from a saved state if there is one.

    The state is saved once a minute, at the end and when a stop is wished for; `forget` removes it.
    """
    first_step, saved_at = _restore(learner, course), time.monotonic()
    with Interrupt() as interrupt, ProgressDisplay(console, course.total_steps, first_step) as display:
        for step, batch in zip(range(first_step, course.total_steps), batches(first_step), strict=False):
            numbers = learner.learn(batch, step)
            done = step + 1
            display.advance(done)
            where = f"epoch {step // course.steps_per_epoch + 1}/{course.epochs}  step {done}/{course.total_steps}"
            display.show(f"{course.title}  {where}".strip(), numbers)
            stop, is_time = sum_counts(interrupt.wished, time.monotonic() - saved_at > SAVE_SECONDS)
            if course.state and (stop or is_time or done == course.total_steps):
                _save(learner, course.state, course.settings, done)
                saved_at = time.monotonic()
            if stop and (course.state or done < course.total_steps):  # more may follow
                how = "the same command goes on" if course.state else "it starts anew"
                raise KeyboardInterrupt(f"Stopped after step {done}; {how}.")
            display.start_clock()


def forget(state: Path | None) -> None:
    """Remove a saved state, once what was learnt is kept elsewhere."""
    if state is not None:
        on_rank_zero(lambda: state.unlink(missing_ok=True))


def _save(learner: Learner[Any], path: Path, settings: dict[str, Any], step: int) -> None:
    content = {"step": step, "settings": settings, "learner": learner.state_dict()}
    on_rank_zero(lambda: checkpoint.save(path, content))


def _restore(learner: Learner[Any], course: TrainingPlan) -> int:
    """Put a saved state back; the number of steps already done."""
    if course.state is None:
        return 0
    saved = saved_state(
        course.state,
        course.settings,
        is_free=lambda name: name in FREE,
        otherwise=f"remove {course.state} to start anew",
    )
    step = 0 if saved is None else int(saved["step"])
    if len({*gather(step)}) > 1:
        raise UserError(f"Processes see different states in {course.state.parent}; put it on a disk they share.")
    if saved is not None:
        learner.load_state_dict(saved["learner"])
    return step
