from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from rich.console import Console
from rich.progress import Progress
from torch import Tensor

from scfs.data.segmented_loader import SegmentedViews, segmented_loader
from scfs.data.sources import SegmentedSource
from scfs.data.unreadable import refuse_unreadable, show_left_out
from scfs.data.views import normalize
from scfs.distributed import gather, sum_counts
from scfs.evaluate.features import refuse_non_finite
from scfs.evaluate.segment.maps import LayerMaps
from scfs.evaluate.sharding import shard_of


@dataclass(frozen=True)
class MapReader:
    """Reads whole images and computes their maps."""

    network: LayerMaps
    size: int
    shape: tuple[int, int]  # of the maps
    workers: int
    device: torch.device

    @torch.no_grad()
    def batches(
        self, source: SegmentedSource, batches: Iterable[Sequence[int]]
    ) -> Iterator[tuple[SegmentedViews, Tensor]]:
        """The images of every batch, given by their indices, and their maps (B, C, h, w) on the device."""
        pin = self.device.type == "cuda"
        for batch in segmented_loader(source, self.size, batches, workers=self.workers, pin=pin):
            yield batch, self.network(normalize(batch.views.to(self.device, non_blocking=True)))

    def read(
        self,
        source: SegmentedSource,
        use: Callable[[SegmentedViews, Tensor], None],
        *,
        batch_size: int,
        console: Console,
        title: str,
    ) -> None:
        """Pass this process's shard of the images to `use`, batch by batch, each with its maps.

        An unreadable image is blank, and its label map is void. They are listed, and too many are an error.
        """
        shard = shard_of(len(source))
        batches = [shard[first : first + batch_size] for first in range(0, len(shard), batch_size)]
        unreadable, damaged = list[str](), 0
        with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
            task = progress.add_task(title, total=len(shard))
            for batch, maps in self.batches(source, batches):
                use(batch, maps)
                unreadable += filter(None, batch.unreadable)
                damaged += int((~maps.isfinite()).flatten(1).any(dim=1).sum())
                progress.advance(task, len(maps))
        unreadable = [problem for problems in gather(unreadable) for problem in problems]
        refuse_unreadable(unreadable, len(source))
        show_left_out(unreadable, console)
        [damaged] = sum_counts(damaged)
        refuse_non_finite(damaged, len(source))
