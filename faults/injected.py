"""python -m faults.injected FAULT STEP ARGS ...: scfs with a fault in one of its steps."""

import os
import sys
from collections.abc import Callable
from typing import Any

import torch

from faults.launch import RECIPE
from scfs.cli import main
from scfs.data.loader import ViewDataset
from scfs.pretraining.step import PretrainLearner

STEP = PretrainLearner.step
VIEWS = ViewDataset.__getitem__


def gradient(at: int, value: float) -> None:
    """One row of a gradient is not finite; the loss is."""

    def step(learner: PretrainLearner, batch: Any, number: int) -> Any:
        if number == at:
            weight = next(p for p in learner.method.student.backbone.parameters() if p.ndim == 4)
            weight.register_hook(lambda grad: grad.index_fill(0, torch.tensor([1]), value))
        return STEP(learner, batch, number)

    PretrainLearner.step = step  # type: ignore[method-assign]


def statistics(at: int) -> None:
    """A running variance of the teacher is NaN after a step."""

    def step(learner: PretrainLearner, batch: Any, number: int) -> Any:
        numbers = STEP(learner, batch, number)
        if number == at:
            buffers = learner.method.teacher.backbone.named_buffers()
            next(buffer for name, buffer in buffers if name.endswith("running_var"))[0] = torch.nan
        return numbers

    PretrainLearner.step = step  # type: ignore[method-assign]


def memory(at: int) -> None:
    """Memory runs out in the data loader's worker."""
    left = [at * RECIPE["optim"]["batch_size"] // int(os.environ.get("WORLD_SIZE", "1"))]  # images

    def views(dataset: ViewDataset, key: tuple[int, int]) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise MemoryError("Unable to allocate 3.5 GiB for an array")
        return VIEWS(dataset, key)

    ViewDataset.__getitem__ = views  # type: ignore[method-assign]


FAULTS: dict[str, Callable[[int], None]] = {
    "inf": lambda at: gradient(at, torch.inf),
    "nan": lambda at: gradient(at, torch.nan),
    "statistics": statistics,
    "memory": memory,
}

if __name__ == "__main__":
    FAULTS[sys.argv[1]](int(sys.argv[2]))
    sys.exit(main(sys.argv[3:]))
