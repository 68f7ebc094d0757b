from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from scfs.data.loader import labelled_loader
from scfs.data.sources import Source


class LabelledFeatures(NamedTuple):
    """Pooled features and classes of every image of a source."""

    features: Tensor  # (images, C) float32, on the CPU
    labels: Tensor  # (images,)


@torch.no_grad()
def extract(
    backbone: nn.Module,
    source: Source,
    *,
    size: int,
    batch_size: int,
    workers: int,
    device: torch.device,
    on_batch: Callable[[int], None] = lambda _: None,
) -> LabelledFeatures:
    """Pooled features of the centre views of a labelled source; the backbone is left as it was found."""
    was_training = {module: module.training for module in backbone.modules()}
    backbone.eval()
    features, labels = [], []
    for images, classes in labelled_loader(
        source, size, batch_size=batch_size, workers=workers, pin=device.type == "cuda"
    ):
        pooled, _ = backbone(images.to(device, non_blocking=True))
        features.append(pooled.float().cpu())
        labels.append(classes)
        on_batch(len(images))
    for module, training in was_training.items():
        module.training = training
    return LabelledFeatures(torch.cat(features), torch.cat(labels))
