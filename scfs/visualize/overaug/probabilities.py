"""Class probabilities of local views, of their images, and of the feature augmentations between: the paper's Fig. 1."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from scfs.evaluate.resampling import interval, resampled_means
from scfs.method.search import search_attention
from scfs.runs.metric import Metric
from scfs.visualize.overaug.classifier import MapClassifier

# N local views, C channels, H W (h w) map height and width, K classes

SAMPLES = ("view", "original", "feature augmentation")


class Compared(NamedTuple):
    """The class probabilities of an image, of its local views, and of their feature augmentations."""

    original: Tensor  # (K,)
    views: Tensor  # (N, K)
    augmented: Tensor  # (N, K)
    attention: Tensor  # (N, H, W)


def feature_augmentations(maps: Tensor, attention: Tensor) -> Tensor:
    """The semantics-consistent feature augmentations of an image (Eq. 9), scaled for its classifier.

    maps: (C, H, W). attention: (N, H, W), one of each view. Returns (N, C, H, W).

    The attention is divided by the mean of its absolute values. Cosines are below 1, so that the plain product of Eq. 9
    has a smaller scale than any map the classifier was trained on; its logits would shrink towards the bias, and the
    probabilities towards uniform, whatever the attention selects. With the division, the mean over positions is the
    average of the map weighted by attention ("attention-weighted average pooling", as the paper says), at the usual
    scale, and a constant attention returns the map itself. Cosines of maps after a ReLU are not negative, and then this
    is the sum of A F over the sum of A. Other maps have negative cosines too: they keep their sign, as in training, and
    the absolute values keep the divisor away from 0.
    """
    scale = attention.abs().mean(dim=(-2, -1), keepdim=True).clamp(min=1e-12)
    return (attention / scale).unsqueeze(1) * maps


def compare(classifier: MapClassifier, original: Tensor, views: Tensor) -> Compared:
    """Compare an image (3, H, W) with its local views (N, 3, h, w), all uint8."""
    maps, view_maps = classifier.maps(original[None]), classifier.maps(views)
    attention = search_attention(view_maps.unsqueeze(1), maps.unsqueeze(0))[0, :, 0]  # (N, H, W)
    return Compared(
        classifier.probabilities(maps)[0],
        classifier.probabilities(view_maps),
        classifier.probabilities(feature_augmentations(maps[0].float(), attention)),
        attention.cpu(),
    )


def scores(found: Compared, reference: int) -> list[float]:
    """Of one image, as `metrics_of` names them: probabilities of a class, and agreements with the original's top-1."""
    top = found.original.argmax()
    return [
        *(float(each[..., reference].mean()) for each in (found.views, found.original, found.augmented)),
        *(float((each.argmax(dim=-1) == top).float().mean()) for each in (found.views, found.augmented)),
    ]


def metrics_of(rows: Sequence[Sequence[float]]) -> list[Metric]:
    """Means over images of their `scores`."""
    values = np.array(rows, np.float64)
    names = [f"{name} probability" for name in SAMPLES] + [f"{name} top-1 agreement" for name in SAMPLES[::2]]
    return [
        Metric(name, float(value), (float(low), float(high)))
        for name, value, (low, high) in zip(names, values.mean(axis=0), interval(resampled_means(values)), strict=True)
    ]


def top_classes(probabilities: Tensor, classes: Sequence[str], count: int = 5) -> list[tuple[str, float]]:
    """The classes of the highest probabilities (K,), highest first."""
    values, labels = torch.topk(probabilities, min(count, len(classes)))
    return [(classes[label], value) for label, value in zip(labels.tolist(), values.tolist(), strict=True)]
