"""Training that saves its state in a file until it is done, so that the same command resumes it."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from scfs.distributed import gather, on_rank_zero
from scfs.errors import UserError
from scfs.runs import checkpoint
from scfs.runs.files import held
from scfs.runs.metrics_log import open_log
from scfs.runs.resume import saved_state
from scfs.training.loop import Batch, Hooks, Learner, TrainingPlan, train

# Settings that may change on resuming: the weights themselves are compared, not what they are called.
FREE = ("workers", "device", "target", "out", "show")
SAVE_SECONDS = 60.0  # between saved states
NUM_ROWS = 1000  # about how many rows a training logs


@dataclass(frozen=True)
class TrainingFiles:
    """Where a training saves its state and its curves, and the settings that a saved state must have."""

    state: Path
    curves: Path  # the folder of metrics.jsonl and TensorBoard
    settings: dict[str, Any]

    def remove_state(self) -> None:
        """Remove the state once the result is saved elsewhere."""
        on_rank_zero(lambda: self.state.unlink(missing_ok=True))


def fit(
    learner: Learner[Batch],
    batches: Callable[[int], Iterator[Batch]],
    plan: TrainingPlan,
    *,
    files: TrainingFiles | None,
    console: Console,
) -> None:
    """Train on the batches from a step on, which `batches` returns. Resumes from a saved state if there is one.

    The state is saved once a minute, at the end and before a stop. Without files, nothing is saved.
    """
    plan = replace(plan, log_every_steps=max(1, plan.total_steps // NUM_ROWS))
    if files is None:
        with open_log(None) as log:
            train(learner, batches(0), plan, Hooks(), log=log, console=console)
        return
    first_step, saved_at = restore(learner, files), time.monotonic()

    def save(step: int) -> None:
        nonlocal saved_at
        content = {"step": step, "settings": files.settings, "learner": learner.state_dict()}
        on_rank_zero(lambda: checkpoint.save(files.state, content))
        saved_at = time.monotonic()

    hooks = Hooks[Batch](save_due=lambda _: time.monotonic() - saved_at > SAVE_SECONDS, save=save)
    plan = replace(plan, first_step=first_step, how_to_resume="run the same command again to resume", more_follows=True)
    with _held(files.curves), open_log(files.curves, first_step) as log:
        train(learner, batches(first_step), plan, hooks, log=log, console=console)


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Hold the folder of a training: rank zero does so for all."""
    with ExitStack() as stack:

        def hold() -> None:
            folder.mkdir(exist_ok=True)
            stack.enter_context(held(folder))

        on_rank_zero(hold)
        yield


def restore(learner: Learner[Any], files: TrainingFiles) -> int:
    """Restore a saved state; returns the number of steps already done."""
    saved = saved_state(
        files.state,
        files.settings,
        is_free=lambda name: name in FREE,
        otherwise=f"remove {files.state} to start again",
    )
    step = 0 if saved is None else int(saved["step"])
    if len({*gather(step)}) > 1:
        raise UserError(f"Processes see different states in {files.state.parent}; put it on a disk they share.")
    if saved is not None:
        learner.load_state_dict(saved["learner"])
    return step
