import time
from collections.abc import Iterator
from typing import TypeVar

from scfs.training.loop import Learner

Batch = TypeVar("Batch")
ENOUGH_SECONDS = 30  # of slow steps, fewer are timed


def seconds_per_step(learner: Learner[Batch], batches: Iterator[Batch], *, warm_up: int, timed: int) -> float:
    """Seconds per step, data loading included, after `warm_up` steps that do not count; it changes the learner."""
    marks = [time.perf_counter()]
    for step, batch in zip(range(warm_up + timed), batches, strict=False):
        learner.step(batch, step)
        marks.append(time.perf_counter())
        if step >= warm_up and marks[-1] - marks[warm_up] > ENOUGH_SECONDS:
            break
    counted = marks[min(warm_up, len(marks) - 2) :]
    return (counted[-1] - counted[0]) / (len(counted) - 1)
