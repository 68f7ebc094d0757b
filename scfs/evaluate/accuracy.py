from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from scfs.runs.metric import Metric

RESAMPLES, LOW, HIGH = 10_000, 2.5, 97.5  # a 95 % interval


class Accuracy(NamedTuple):
    """Top-1 and top-5 accuracy, as fractions, and their 95 % intervals."""

    top1: float
    top5: float
    interval: tuple[float, float] = (0.0, 1.0)
    top5_interval: tuple[float, float] = (0.0, 1.0)

    @classmethod
    def of(cls, hits: Tensor) -> "Accuracy":
        """From hits (images, 2): in the first guess, in the first five."""
        top1, top5 = hits.float().mean(dim=0).tolist()
        return cls(top1, top5, *(bootstrap_interval([each], [len(hits)]) for each in (top1, top5)))

    @classmethod
    def per_class(cls, hits: Tensor, labels: Tensor) -> "Accuracy":
        """Mean of the accuracies of each class, so that all classes count equally; labels: (images,)."""
        by_class = [hits[labels == label] for label in labels.unique()]
        accuracies = torch.stack([each.float().mean(dim=0) for each in by_class])  # (classes, 2)
        top1, top5 = accuracies.mean(dim=0).tolist()
        counts = [len(each) for each in by_class]
        return cls(top1, top5, *(bootstrap_interval(column, counts) for column in accuracies.T.tolist()))

    def metrics(self, prefix: str = "", first: str = "top-1", *, num_classes: int) -> list[Metric]:
        """As evaluations return them; `first` names the first, which is "mean per class" for some data sets.

        Top-5 is left out where there are only five classes or fewer, as five guesses are always right.
        """
        top5 = [Metric(f"{prefix}top-5", self.top5, self.top5_interval)] if num_classes > 5 else []
        return [Metric(f"{prefix}{first}", self.top1, self.interval), *top5]


def bootstrap_interval(accuracies: Sequence[float], counts: Sequence[int]) -> tuple[float, float]:
    """95 % bootstrap interval of the mean of accuracies on `counts` images each, resampling images.

    A resample of hits and misses has a binomial number of hits, so that number is drawn instead of images.
    """
    drawn = np.random.default_rng(0).binomial(counts, accuracies, (RESAMPLES, len(counts))) / counts
    low, high = np.percentile(drawn.mean(axis=1), [LOW, HIGH])
    return float(low), float(high)
