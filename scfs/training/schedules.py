import math
from collections.abc import Sequence

# Schedules are pure functions of the step: a resumed run needs no saved state.

WARMUP_START = 0.001  # of the rate, in detectron2's warm-up


def cosine(step: int, total_steps: int, *, start: float, end: float, warmup_steps: int = 0) -> float:
    """Rise linearly to `start` during the warm-up, then follow half a cosine to `end`.

    The first step already takes a part of the warm-up, so its value is not 0; the last step is at `end`.
    """
    if step < warmup_steps:
        return start * (step + 1) / (warmup_steps + 1)
    progress = (step - warmup_steps) / max(1, total_steps - 1 - warmup_steps)
    return end + 0.5 * (start - end) * (1 + math.cos(math.pi * min(1.0, progress)))


def linear_warmup(step: int, warmup_steps: int, *, start: float, end: float) -> float:
    """Go linearly from `start` to `end` during the warm-up and stay there."""
    return end if step >= warmup_steps else start + (end - start) * step / warmup_steps


def stepped(step: int, *, start: float, drops: Sequence[int], warmup_steps: int) -> float:
    """Rise linearly to `start` during the warm-up, then fall to a tenth at each of the steps `drops`."""
    rise = min(1.0, WARMUP_START + (1 - WARMUP_START) * step / warmup_steps) if warmup_steps else 1.0
    return start * rise * 0.1 ** sum(step >= drop for drop in drops)
