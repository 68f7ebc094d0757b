from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scfs.view_batch import ViewBatch

# G global views, N local views, B images per process


class PackedBatch(NamedTuple):
    """A batch of views as it leaves a loader worker.

    Each tensor sent from one process to another takes its own file and connection, so there is only one.
    """

    pixels: Tensor  # of the global views, then of the local views
    shapes: Sequence[Sequence[int]]  # (G, B, h, w, 3) and (N, B, h, w, 3)
    others: list[NDArray[Any]]  # the rest of a batch

    def unpack(self) -> ViewBatch:
        """The batch."""
        sizes = [int(np.prod(shape)) for shape in self.shapes]
        views = [
            pixels.view(*shape).movedim(-1, 2)  # channels stay last in memory
            for pixels, shape in zip(self.pixels.split(sizes), self.shapes, strict=True)
        ]
        return ViewBatch(*views, *map(torch.from_numpy, self.others))


def pack(samples: Sequence[ViewBatch], *, share_memory: bool) -> PackedBatch:
    """Views of single images as one batch: B becomes the second axis."""
    global_views, local_views, *others = zip(*samples, strict=True)
    kinds = [[views.movedim(1, -1) for views in kind] for kind in (global_views, local_views)]  # (V, h, w, 3) each
    shapes = [(len(kind[0]), len(kind), *kind[0].shape[1:]) for kind in kinds]
    sizes = [int(np.prod(shape)) for shape in shapes]
    pixels = torch.empty(sum(sizes), dtype=kinds[0][0].dtype)
    if share_memory:
        pixels.share_memory_()
    for kind, shape, part in zip(kinds, shapes, pixels.split(sizes), strict=True):
        torch.stack(kind, dim=1, out=part.view(shape))
    return PackedBatch(pixels, shapes, [torch.stack(parts, dim=1).numpy() for parts in others])


def stack_images(samples: Sequence[ViewBatch]) -> ViewBatch:
    """Views of single images as one batch."""
    return pack(samples, share_memory=False).unpack()
