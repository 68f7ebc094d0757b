from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch
from rich.console import Console
from torch import Tensor

from scfs import distributed
from scfs.data.loader import StepSampler
from scfs.data.segmentation import LabelMap
from scfs.data.segmented_loader import SegmentedViews
from scfs.data.sources import SegmentedSource
from scfs.errors import UserError
from scfs.evaluate.segment.cells import sampled
from scfs.evaluate.segment.linear_layer import Batch, ChannelStatistics, LayerLearner, LinearLayer
from scfs.evaluate.segment.memory import Memory, MemoryBuilder
from scfs.evaluate.segment.predictions import Classifier
from scfs.evaluate.segment.reader import MapReader
from scfs.evaluate.segment.settings import Segment
from scfs.evaluate.sharding import in_order, shard_of, usable_batch_size
from scfs.training.loop import TrainingPlan
from scfs.training.resumable import TrainingFiles, fit

# C channels, h w map height and width

FINER = 4  # labels per position and side to train the linear layer on
CACHE_BYTES = 1_000_000_000  # of maps to keep for the linear layer; more are computed again in every epoch
NEIGHBOURS, LINEAR = "neighbours", "linear"


@dataclass(frozen=True)
class Fitting:
    """Learns to classify the positions of maps from train images."""

    reader: MapReader
    train: SegmentedSource
    settings: Segment
    console: Console

    def classifiers(self, files: TrainingFiles | None) -> dict[str, Classifier]:
        """The methods that are set, by name, after one pass over the train images and the linear layer's training."""
        settings, reader = self.settings, self.reader
        collected = Collected(self)
        reader.read(
            self.train, collected.add, batch_size=settings.batch_size, console=self.console, title="train images"
        )
        found: dict[str, Classifier] = {}
        if collected.memory is not None:
            memory = self._memory(collected.memory)
            found[NEIGHBOURS] = partial(memory.votes, k=settings.k, temperature=settings.temperature)
        if settings.method != NEIGHBOURS:
            found[LINEAR] = self._linear(collected, files).eval()
        return found

    @property
    def map_bytes(self) -> int:
        """The size of the maps of all train images."""
        height, width = self.reader.shape
        return 4 * len(self.train) * self.reader.network.num_channels * height * width

    def labels(self, label_map: LabelMap) -> Tensor:
        """The labels of an image to train the linear layer on."""
        height, width = self.reader.shape
        return sampled(label_map, (FINER * height, FINER * width))

    def _memory(self, builder: MemoryBuilder) -> Memory:
        memory = builder.build(self.reader.device)
        if not len(memory.features):
            raise UserError("All pixels of the train images are void; give images with labels.")
        height, width = self.reader.shape
        megabytes = sum(4e-6 * part.numel() for part in memory)
        of_all = f"{len(memory.features)} of {len(self.train) * height * width} positions of train maps"
        self._print(f"memory   {of_all} ({megabytes:.0f} MB)")
        return memory

    def _linear(self, collected: "Collected", files: TrainingFiles | None) -> LinearLayer:
        """The layer, trained on maps from memory or, where these are too large, computed again for every batch."""
        settings, device, cache = self.settings, self.reader.device, collected.cache
        if cache is None:
            self._print(
                f"Train maps ({self.map_bytes / 1e9:.1f} GB) are too large to keep: computed again in each epoch."
            )
        layer = LinearLayer(*collected.statistics.build(), len(self.train.classes)).to(device)
        batch_size = (
            min(settings.batch_size, len(self.train))
            if cache is not None
            else usable_batch_size(settings.batch_size, len(self.train))
        )
        plan = TrainingPlan(len(self.train) // batch_size, settings.steps, batch_size, title="linear layer")
        learner = LayerLearner(layer, lr=settings.lr, total_steps=settings.steps, alone=cache is not None)
        batches = self._live_batches if cache is None else partial(self._cached_batches, cache.gathered())
        fit(learner, partial(batches, plan), plan, files=files, console=self.console)
        return layer

    def _cached_batches(self, cached: Batch, plan: TrainingPlan, first_step: int) -> Iterator[Batch]:
        """All images of each batch, from memory."""
        for indices in self._indices(plan, first_step, rank=0, world_size=1):
            yield Batch(cached.maps[indices], cached.labels[indices])

    def _live_batches(self, plan: TrainingPlan, first_step: int) -> Iterator[Batch]:
        """The process's shard of each batch, read and passed through the backbone."""
        shards = self._indices(plan, first_step, rank=distributed.rank(), world_size=distributed.world_size())
        for batch, maps in self.reader.batches(self.train, shards):
            yield Batch(maps, torch.stack([self.labels(each) for each in batch.label_maps]))

    def _indices(self, plan: TrainingPlan, first_step: int, *, rank: int, world_size: int) -> Iterator[list[int]]:
        """The images of each step from `first_step` on."""
        sampler = StepSampler(
            len(self.train),
            plan.batch_size,
            plan.epochs,
            seed=self.settings.seed,
            start_step=first_step,
            rank=rank,
            world_size=world_size,
        )
        return ([index for _, index in keys] for keys in sampler)

    def _print(self, line: str) -> None:
        self.console.print(line)


class Collected:
    """What one pass over the train images collects: the memory, and statistics and maps for the linear layer."""

    def __init__(self, fitting: Fitting):
        settings, reader = fitting.settings, fitting.reader
        self.fitting = fitting
        self.memory = (
            MemoryBuilder(
                num_classes=len(fitting.train.classes),
                num_images=len(fitting.train),
                limit=settings.memory,
                seed=settings.seed,
            )
            if settings.method != LINEAR
            else None
        )
        self.statistics = ChannelStatistics(reader.network.num_channels, reader.device)
        fits = settings.method != NEIGHBOURS and fitting.map_bytes <= CACHE_BYTES
        self.cache = Cache(len(shard_of(len(fitting.train))), reader) if fits else None

    def add(self, batch: SegmentedViews, maps: Tensor) -> None:
        """Collect from a batch of images."""
        self.statistics.add(maps[[not problem for problem in batch.unreadable]])
        for index, each, label_map in zip(batch.indices, maps, batch.label_maps, strict=True):
            if self.memory is not None:
                self.memory.add(index, each, label_map)
            if self.cache is not None:
                self.cache.add(index, each, self.fitting.labels(label_map))


class Cache:
    """Maps and labels of the train images of this process."""

    def __init__(self, num_images: int, reader: MapReader):
        height, width = reader.shape
        self.indices: list[int] = []
        self.maps = torch.empty(num_images, reader.network.num_channels, height, width)
        self.labels = torch.empty(num_images, FINER * height, FINER * width, dtype=torch.uint8)

    def add(self, index: int, maps: Tensor, labels: Tensor) -> None:
        """Store those of an image."""
        row = len(self.indices)
        self.indices.append(index)
        self.maps[row], self.labels[row] = maps, labels

    def gathered(self) -> Batch:
        """Those of all processes, in the order of the source."""
        _, maps, labels = in_order(torch.tensor(self.indices), self.maps, self.labels, rows=16, everywhere=True)
        return Batch(maps, labels)
