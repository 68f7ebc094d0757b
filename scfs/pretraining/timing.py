import time
from collections.abc import Iterator
from typing import TypeVar

from scfs.distributed import sum_counts
from scfs.training.loop import Learner

Batch = TypeVar("Batch")
WARM_UP_STEPS = 2
ENOUGH_SECONDS = 15  # of slow steps, fewer are taken, to warm up and to be timed


def seconds_per_step(learner: Learner[Batch], batches: Iterator[Batch], *, ahead: int, timed: int) -> float:
    """Seconds per step, data loading included; it changes the learner.

    The first steps do not count: they are slower, and those of the `ahead` batches that the workers load meanwhile do
    not wait for data.
    """
    warm_up = _times(learner, batches, 0, WARM_UP_STEPS + ahead)
    counted = _times(learner, batches, len(warm_up), timed) or warm_up[-1:]
    return sum(counted) / len(counted)


def _times(learner: Learner[Batch], batches: Iterator[Batch], first_step: int, steps: int) -> list[float]:
    """The seconds of each of some steps; of fewer, if they take long in any process."""
    times, mark = list[float](), time.perf_counter()
    for step, batch in zip(range(first_step, first_step + steps), batches, strict=False):
        learner.step(batch, step)
        times.append(time.perf_counter() - mark)
        mark += times[-1]
        if any(sum_counts(sum(times) > ENOUGH_SECONDS)):
            break
    return times
