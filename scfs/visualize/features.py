from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from scfs.data.loader import centre_loader
from scfs.data.sources import Source
from scfs.data.views import normalize


class Sample(NamedTuple):
    """Pooled features of some images of a source."""

    indices: Tensor  # (images,) in the source
    features: Tensor  # (images, C) float32, on the CPU
    labels: Tensor  # (images,); -1 where there are no classes
    unreadable: list[str]  # name and reason of each image that was left out


def sample_indices(num_images: int, limit: int) -> list[int]:
    """At most `limit` indices, evenly spaced, so that sources sorted by class give all classes."""
    return [int(i) for i in np.linspace(0, num_images - 1, min(num_images, limit)).round()]


@torch.no_grad()
def sample_features(
    backbone: nn.Module,
    source: Source,
    *,
    size: int,
    limit: int,
    workers: int = 0,
    on_batch: Callable[[int], object] = lambda _: None,
) -> Sample:
    """Features of the centre views of at most `limit` images; those that cannot be read are left out.

    The backbone is put into evaluation mode. on_batch is called with the number of images of each batch.
    """
    backbone.eval()
    device = next(backbone.parameters()).device
    indices, features, labels, unreadable = [], [], [], []
    chosen = sample_indices(len(source), limit)
    for batch in centre_loader(source, size, chosen, batch_size=64, workers=workers, pin=device.type == "cuda"):
        readable = torch.tensor([not problem for problem in batch.unreadable])
        pooled, _ = backbone(normalize(batch.views.to(device)))
        indices.append(batch.indices[readable])
        features.append(pooled.float().cpu()[readable])
        labels.append(batch.labels[readable])
        unreadable += [problem for problem in batch.unreadable if problem]
        on_batch(len(batch.views))
    return Sample(torch.cat(indices), torch.cat(features), torch.cat(labels), unreadable)
