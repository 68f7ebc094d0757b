import os
import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from scfs.data.sources import Source
from scfs.data.views import MultiCrop, ViewBatch, centre_view, stack_images
from scfs.errors import UserError

MAX_WORKERS = 8


def derive_seed(*keys: int) -> int:
    """A well-mixed 63-bit seed that is a function of the keys."""
    return int(np.random.SeedSequence(keys).generate_state(1, np.uint64)[0] >> np.uint64(1))


def epoch_order(seed: int, epoch: int, num_images: int) -> list[int]:
    """The order of an epoch's images: a function of (seed, epoch)."""
    order: list[int] = np.random.default_rng(np.random.SeedSequence((seed, epoch))).permutation(num_images).tolist()
    return order


class ViewDataset(Dataset[ViewBatch]):
    """Views of (epoch, index): the randomness is a function of (seed, epoch, index), whoever computes them."""

    def __init__(self, source: Source, multi_crop: MultiCrop, seed: int):
        self.source, self.multi_crop, self.seed = source, multi_crop, seed

    def __getitem__(self, key: tuple[int, int]) -> ViewBatch:
        epoch, index = key
        return self.multi_crop(self.source.image(index), derive_seed(self.seed, epoch, index))


class StepSampler(Sampler[list[tuple[int, int]]]):
    """The (epoch, index) pairs of each step from `start_step` on. An epoch's last, incomplete batch is left out."""

    def __init__(self, num_images: int, batch_size: int, epochs: int, *, seed: int, start_step: int = 0):
        self.num_images, self.batch_size, self.epochs = num_images, batch_size, epochs
        self.seed, self.start_step = seed, start_step
        self.steps_per_epoch = num_images // batch_size

    def __len__(self) -> int:
        return self.epochs * self.steps_per_epoch - self.start_step

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        first_epoch, first_step = divmod(self.start_step, self.steps_per_epoch)
        for epoch in range(first_epoch, self.epochs):
            order = epoch_order(self.seed, epoch, self.num_images)
            for step in range(first_step if epoch == first_epoch else 0, self.steps_per_epoch):
                batch = order[step * self.batch_size : (step + 1) * self.batch_size]
                yield [(epoch, index) for index in batch]


class LabelledDataset(Dataset[tuple[Tensor, int]]):
    """Centre views and labels, for evaluation."""

    def __init__(self, source: Source, size: int):
        self.source, self.size = source, size

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return centre_view(self.source.image(index), self.size), self.source.label(index)


def view_loader(dataset: ViewDataset, sampler: StepSampler, *, workers: int, pin: bool) -> Iterator[ViewBatch]:
    """One pass over all the steps of a run; workers live as long as it does."""
    return _iterate(DataLoader(dataset, batch_sampler=sampler, collate_fn=stack_images, **_options(workers, pin)))


def labelled_loader(
    source: Source, size: int, *, batch_size: int, workers: int, pin: bool
) -> Iterator[tuple[Tensor, Tensor]]:
    """Every image once, in order."""
    return _iterate(DataLoader(LabelledDataset(source, size), batch_size=batch_size, **_options(workers, pin)))


def num_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def num_workers(setting: int | str, device: torch.device) -> int:
    """Loader processes. `auto`: one per core, at most 8; beside a network on the same cores, one per four."""
    if setting != "auto":
        return int(setting)
    return max(1, num_cores() // 4) if device.type == "cpu" else min(num_cores(), MAX_WORKERS)


def _iterate(loader: DataLoader[Any]) -> Iterator[Any]:
    """Its batches; a user's mistake found in a worker comes without the worker's traceback."""
    try:
        yield from loader
    except UserError as error:
        last_line = str(error).strip().splitlines()[-1]
        raise UserError(last_line.removeprefix("scfs.errors.UserError: ")) from None


def _options(workers: int, pin: bool) -> dict[str, Any]:
    # A generator of its own: a loader must not move torch's, which the training step uses.
    options: dict[str, Any] = {"num_workers": workers, "pin_memory": pin, "generator": torch.Generator()}
    if workers:
        options |= {"prefetch_factor": 4, "worker_init_fn": _quiet_worker}
    return options


def _quiet_worker(_: int) -> None:
    """One thread each; Ctrl-C is the main process's to handle, and a kill must not run its handler here."""
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
