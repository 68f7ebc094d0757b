from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from scfs.data.segmentation import LabelMap
from scfs.data.segmented_loader import SegmentedViews
from scfs.distributed import gather
from scfs.evaluate.segment.iou import Counts, count_pixels

# B images, C channels, h w map height and width, K classes

Classifier = Callable[[Tensor], Tensor]  # maps (B, C, h, w) -> scores (B, K, h, w)


class Predicted(NamedTuple):
    """What was found in an image, by the name of the method."""

    counts: dict[str, Counts]
    label_maps: dict[str, LabelMap]  # empty unless they are to be shown


class Predictions:
    """Classifies the pixels of val images by one or more methods, and counts those that are right."""

    def __init__(self, classifiers: Mapping[str, Classifier], *, num_classes: int, shown: Collection[int]):
        self.classifiers, self.num_classes, self.shown = classifiers, num_classes, shown
        self.images: dict[int, Predicted] = {}

    @torch.no_grad()
    def add(self, batch: SegmentedViews, maps: Tensor) -> None:
        """Classify the images of a batch that can be read."""
        scores = {name: classify(maps).cpu() for name, classify in self.classifiers.items()}
        for i, (index, truth, problem) in enumerate(
            zip(batch.indices, batch.label_maps, batch.unreadable, strict=True)
        ):
            if problem:
                continue
            found = {name: best_classes(each[i], truth.shape) for name, each in scores.items()}
            counts = {name: count_pixels(truth, each, self.num_classes) for name, each in found.items()}
            self.images[index] = Predicted(counts, found if index in self.shown else {})

    def gathered(self) -> dict[int, Predicted]:
        """Those of all processes, in the order of the images."""
        images = {index: each for shard in gather(self.images) for index, each in shard.items()}
        return {index: images[index] for index in sorted(images)}


def best_classes(scores: Tensor, shape: tuple[int, ...]) -> LabelMap:
    """The classes of pixels: those with the highest scores (K, h, w), upsampled bilinearly to a label map's shape."""
    classes = _contenders(scores)
    upsampled = F.interpolate(scores[None, classes], shape, mode="bilinear", align_corners=False)[0]
    best = upsampled.max(dim=0).indices  # a quarter of argmax's time
    return classes[best].numpy().astype(np.uint8)


def _contenders(scores: Tensor) -> Tensor:
    """The classes that are the best of some pixel, and perhaps a few more.

    What is lower than another class at every position is lower at every pixel. With many classes, most are.
    """
    flat = scores.flatten(1)  # (K, h w)
    winners = flat[flat.argmax(dim=0).unique()].unsqueeze(1)  # (winners, 1, h w)
    beaten = (winners >= flat).all(dim=-1) & (winners > flat).any(dim=-1)  # (winners, K)
    return torch.nonzero(~beaten.any(dim=0)).flatten()
