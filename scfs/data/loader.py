import logging
import os
import re
import signal
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from multiprocessing import active_children
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from threading import current_thread, main_thread
from typing import Any, NamedTuple, Protocol

import cv2
import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler, get_worker_info

from scfs.cores import allowed_cores, unbind
from scfs.data.decode import Unreadable
from scfs.data.order import EpochOrder
from scfs.data.packed_batch import PackedBatch, pack
from scfs.data.sources import Source
from scfs.data.unreadable import UnreadableImages, first_readable, reading
from scfs.data.views import MultiCrop, centre_view, crop_and_flip
from scfs.distributed import gather, num_cores, per_process, rank, sum_counts, world_size
from scfs.errors import UserError, WorkerDiedError, file_size_limit, out_of_shared_memory
from scfs.view_batch import ViewBatch

MAX_WORKERS = 8  # chosen by auto
PREFETCHED = 4  # batches that a worker loads ahead
NICENESS = 10  # of workers beside a step on a CPU, which gains about a tenth
WORKERS_PER_CORE, LEAST_LIMIT = 4, 32  # more only use memory: thousands never finish starting
DEATH_SECONDS = 5.0  # that a killed worker may take to end
WORKER_DEATH = re.compile(r"DataLoader worker \(pid(?:\(s\))? ([\d, ]+)\) (?:is killed by|exited unexpectedly)")
# With a GPU, the thread that pins batches ends when a worker dies while it hands one over.
PIN_THREAD_DEATH = "Pin memory thread exited unexpectedly"
MIN_SHARED = 2**30  # bytes of shared memory, which the system counts as a file
LOGGER = logging.getLogger("scfs.data")


def derive_seed(*keys: int) -> int:
    """A well-mixed 63-bit seed that is a function of the keys."""
    return int(np.random.SeedSequence(keys).generate_state(1, np.uint64)[0] >> np.uint64(1))


class LoadedViews(NamedTuple):
    """Views of images, and the images that could not be read."""

    views: ViewBatch
    unreadable: list[str]  # name and reason of each image that was replaced by another


class ViewDataset(Dataset[LoadedViews]):
    """Views of (epoch, index): the randomness is a function of (seed, epoch, index), in any process."""

    def __init__(self, source: Source, multi_crop: MultiCrop, seed: int):
        self.source, self.multi_crop, self.seed = source, multi_crop, seed

    def __getitem__(self, key: tuple[int, int]) -> LoadedViews:
        epoch, index = key
        seed = derive_seed(self.seed, epoch, index)
        views, _, unreadable = first_readable(self.source, index, lambda image, _: self.multi_crop(image, seed))
        # Only this image: unreadable ones after it are reported at their own index, and must not be counted twice.
        return LoadedViews(views, unreadable[:1])


class StepSampler(Sampler[list[tuple[int, int]]]):
    """The (epoch, index) pairs of each step from `start_step` on. An epoch's last, incomplete batch is dropped.

    With gradient accumulation, each micro-batch is one list. A process takes its shard of every micro-batch.
    """

    def __init__(
        self,
        num_images: int,
        batch_size: int,
        epochs: int,
        *,
        seed: int,
        start_step: int = 0,
        micro_batches: int = 1,
        rank: int = 0,
        world_size: int = 1,
    ):
        self.num_images, self.batch_size, self.epochs = num_images, batch_size, epochs
        self.seed, self.start_step, self.micro_batches = seed, start_step, micro_batches
        self.rank, self.world_size = rank, world_size
        self.steps_per_epoch = num_images // batch_size

    def __len__(self) -> int:
        return (self.epochs * self.steps_per_epoch - self.start_step) * self.micro_batches

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        first_epoch, first_step = divmod(self.start_step, self.steps_per_epoch)
        shard = self.batch_size // (self.micro_batches * self.world_size)
        for epoch in range(first_epoch, self.epochs):
            order = EpochOrder(self.seed, epoch, self.num_images)
            for step in range(first_step if epoch == first_epoch else 0, self.steps_per_epoch):
                for micro_batch in range(self.micro_batches):
                    first = step * self.batch_size + (micro_batch * self.world_size + self.rank) * shard
                    yield [(epoch, index) for index in order[first : first + shard]]


class CentreViews(NamedTuple):
    """Centre views of images, for evaluation. For one image, the same without the B axis."""

    indices: Tensor  # (B,) in the source
    views: Tensor  # (B, 3, size, size) uint8; blank where unreadable
    labels: Tensor  # (B,); -1 where there are no classes
    unreadable: list[str]  # why each image cannot be read; empty if it can


class CentreDataset(Dataset[CentreViews]):
    """The centre view and the label of every image, or of some."""

    def __init__(self, source: Source, size: int, indices: Sequence[int]):
        self.source, self.size, self.indices = source, size, indices

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, item: int) -> Any:
        index = self.indices[item]
        label = self.source.label(index) if self.source.classes else -1
        try:
            with reading(self.source, index):
                return CentreViews(index, centre_view(self.source.image(index), self.size), label, "")  # type: ignore[arg-type]
        except Unreadable as error:
            blank = torch.zeros(3, self.size, self.size, dtype=torch.uint8)
            return CentreViews(index, blank, label, str(error))  # type: ignore[arg-type]


class LabelledViews(NamedTuple):
    """A random view of each image with its class, for training with labels. For one image, without the B axis."""

    indices: Tensor  # (B,) in the source
    views: Tensor  # (B, 3, size, size) uint8
    labels: Tensor  # (B,)
    unreadable: list[str]  # why each image was replaced by another; empty if it was not


class CropDataset(Dataset[LabelledViews]):
    """A crop, perhaps flipped, of (epoch, index); its randomness is a function of (seed, epoch, index)."""

    def __init__(self, source: Source, size: int, seed: int):
        self.source, self.size, self.seed = source, size, seed

    def __getitem__(self, key: tuple[int, int]) -> Any:
        epoch, index = key
        seed = derive_seed(self.seed, epoch, index)
        view, found, unreadable = first_readable(
            self.source, index, lambda image, _: crop_and_flip(image, self.size, seed)
        )
        return LabelledViews(found, view, self.source.label(found), "".join(unreadable[:1]))  # type: ignore[arg-type]


class TrainingDataset(Protocol):
    """Samples of (epoch, index), a function of the seed too. Their batches list what could not be read."""

    @property
    def source(self) -> Source: ...

    @property
    def seed(self) -> int: ...

    def __getitem__(self, key: tuple[int, int]) -> Any: ...


def training_batches(
    dataset: TrainingDataset,
    *,
    batch_size: int,
    epochs: int,
    start_step: int,
    workers: int | str,
    device: torch.device,
    on_unreadable: Callable[[str], object],
    micro_batches: int = 1,
    collate: Callable[[list[Any]], Any] | None = None,
) -> Iterator[Any]:
    """Yield this process's shard of every step's batch, or of each of its micro-batches, in one pass.

    `on_unreadable` is called in every process, once for each image that any process cannot read; too many are an error.
    """
    per_process(batch_size, "batch_size")
    sampler = StepSampler(
        len(dataset.source),
        batch_size,
        epochs,
        seed=dataset.seed,
        start_step=start_step,
        micro_batches=micro_batches,
        rank=rank(),
        world_size=world_size(),
    )
    unreadable = UnreadableImages(len(dataset.source))
    options = {"workers": num_workers(workers, device), "pin": device.type == "cuda", "collate_fn": collate}
    for batch in load(dataset, batch_sampler=sampler, **options):  # type: ignore[arg-type]
        here = {problem for problem in batch.unreadable if problem} - unreadable.reported
        if any(sum_counts(len(here))):
            for problem in unreadable.add(problem for there in gather(here) for problem in there):
                on_unreadable(problem)
            unreadable.refuse_too_many()
        yield batch


def view_loader(dataset: ViewDataset, sampler: StepSampler, *, workers: int, pin: bool) -> Iterator[list[LoadedViews]]:
    """The micro-batches of every step of a run, in one pass; workers live until its end."""
    loaded = load(dataset, workers=workers, pin=pin, batch_sampler=sampler, collate_fn=_pack)
    micro_batches = (LoadedViews(packed.unpack(), unreadable) for packed, unreadable in loaded)
    return (list(batch) for batch in zip(*[micro_batches] * sampler.micro_batches, strict=True))


def _pack(samples: list[LoadedViews]) -> tuple[PackedBatch, list[str]]:
    packed = pack([sample.views for sample in samples], share_memory=get_worker_info() is not None)
    return packed, [name for sample in samples for name in sample.unreadable]


def centre_loader(
    source: Source, size: int, indices: Sequence[int], *, batch_size: int, workers: int, pin: bool
) -> Iterator[CentreViews]:
    """The images at the given indices, once and in order."""
    return load(CentreDataset(source, size, indices), workers=workers, pin=pin, batch_size=batch_size)


def single_images(dataset: Dataset[Any], *, workers: int, pin: bool) -> Iterator[Any]:
    """The samples of a dataset one by one, in order."""
    return load(dataset, workers=workers, pin=pin, batch_size=None)


def num_workers(setting: int | str, device: torch.device) -> int:
    """Loader processes. `auto`: one per core, at most 8; if the network runs on the same cores, one per four.

    None where files are limited to a size that the shared memory of a batch may exceed: workers would wait forever.
    """
    if setting != 0 and (limit := file_size_limit(below=MIN_SHARED)):
        if rank() == 0:
            LOGGER.warning("Files are limited to %s (ulimit -f): images are loaded without workers.", limit)
        return 0
    if setting != "auto":
        most = max(LEAST_LIMIT, WORKERS_PER_CORE * num_cores())
        if int(setting) > most and rank() == 0:
            LOGGER.warning("%s data loader workers are too many for %d cores; using %d.", setting, num_cores(), most)
        return min(int(setting), most)
    return max(1, num_cores() // 4) if device.type == "cpu" else min(num_cores(), MAX_WORKERS)


def load(dataset: Dataset[Any], *, workers: int, pin: bool, **options: Any) -> Iterator[Any]:
    """The batches of a `DataLoader`; a `UserError` in a worker comes without the worker's traceback.

    If a worker fails or is killed, the others are killed too: they may wait for a lock that it held.
    """
    before, started = {*active_children()}, list[BaseProcess]()
    try:
        with warnings.catch_warnings(), _without_child_handler():
            warnings.filterwarnings("ignore", "This DataLoader will create")  # `num_workers` has its own limit
            batches = iter(DataLoader(dataset, **options, **_options(workers, pin)))
        started = [child for child in active_children() if child not in before]
        yield from batches
        started = []  # the loader has ended them
    except UserError as error:
        last_line = str(error).strip().splitlines()[-1]
        raise UserError(last_line.removeprefix("scfs.errors.UserError: ")) from None
    except (RuntimeError, ConnectionError, EOFError) as error:
        if (sentence := _worker_death(error, started)) is None:
            raise
        raise WorkerDiedError(sentence) from None
    finally:
        _kill(started)


@contextmanager
def _without_child_handler() -> Iterator[None]:
    """Have no handler of SIGCHLD, and forget one that is set meanwhile: torch's, when a loader starts its workers.

    It raises the death of a worker at whatever line the main thread has reached, even while a checkpoint is written or
    the same death is handled. Without it the loader finds the death when it waits for a batch, within 5 seconds.
    """
    if current_thread() is not main_thread() or not hasattr(signal, "SIGCHLD"):  # Windows has none
        yield
        return
    handler = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGCHLD, handler)


def _worker_death(error: Exception, workers: Sequence[BaseProcess]) -> str | None:
    """The sentence about a worker whose death is the reason for an error; None if there is none.

    A worker that is killed while it hands over a batch closes the connection before it counts as dead.
    """
    if shared := out_of_shared_memory(error):
        return shared
    pids = None
    if death := WORKER_DEATH.search(str(error)):
        pids = death[1]
    elif not isinstance(error, RuntimeError) or PIN_THREAD_DEATH in str(error):
        died = wait([worker.sentinel for worker in workers], timeout=DEATH_SECONDS)
        pids = ", ".join(str(worker.pid) for worker in workers if worker.sentinel in died)
    if not pids:
        return None
    return (
        f"Data loader worker {pids} exited unexpectedly; if memory ran out, lower the number of workers or the batch "
        "size, and start again."
    )


def _kill(workers: Sequence[BaseProcess]) -> None:
    """End workers at once; torch's handler, if a loader of the caller has set it, would report each as a failure."""
    living = [worker for worker in workers if worker.is_alive()]
    if not living:
        return
    with _without_child_handler():
        for worker in living:
            worker.kill()
        for worker in living:
            worker.join()


def _options(workers: int, pin: bool) -> dict[str, Any]:
    # A separate generator: a loader must not advance torch's global one, which the training step uses.
    options: dict[str, Any] = {"num_workers": workers, "pin_memory": pin, "generator": torch.Generator()}
    if workers:
        options |= {"prefetch_factor": PREFETCHED, "worker_init_fn": partial(_quiet_worker, not pin, allowed_cores())}
    return options


def _quiet_worker(lower_priority: bool, cores: list[int], _: int) -> None:
    """One thread, on any core; Ctrl-C is handled by the main process, and SIGTERM must not run its handler here.

    lower_priority: than the threads of a training step on the same cores, which wait for each other.
    """
    unbind(cores)
    if lower_priority and hasattr(os, "nice"):
        os.nice(NICENESS)
    torch.set_num_threads(1)
    cv2.setNumThreads(0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
