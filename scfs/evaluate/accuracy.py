from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from scfs.runs.metric import Metric

RESAMPLES, LOW, HIGH = 10_000, 2.5, 97.5  # a 95 % interval


class Accuracy(NamedTuple):
    """Fractions of images whose class is the first guess, or among the first five, and the interval of the first."""

    top1: float
    top5: float
    interval: tuple[float, float] = (0.0, 1.0)  # of top1

    @classmethod
    def of(cls, hits: Tensor) -> "Accuracy":
        """Of hits (images, 2): first guess, first five."""
        top1, top5 = hits.float().mean(dim=0).tolist()
        return cls(top1, top5, bootstrap_interval([top1], [len(hits)]))

    @classmethod
    def per_class(cls, hits: Tensor, labels: Tensor) -> "Accuracy":
        """The mean over the classes of each one's shares, so that all classes count alike; labels: (images,)."""
        parts = [hits[labels == label] for label in labels.unique()]
        top1, top5 = torch.stack([part.float().mean(dim=0) for part in parts]).mean(dim=0).tolist()
        shares, counts = [float(part[:, 0].float().mean()) for part in parts], [len(part) for part in parts]
        return cls(top1, top5, bootstrap_interval(shares, counts))

    def metrics(self, prefix: str = "", first: str = "top-1") -> list[Metric]:
        """As evaluations return it; `first` is the name of the first, which is "mean per class" of some data sets."""
        return [Metric(f"{prefix}{first}", self.top1, self.interval), Metric(f"{prefix}top-5", self.top5)]

    def shown(self) -> tuple[str, str, str]:
        """Top-1, its interval and top-5, in per cent."""
        low, high = self.interval
        return f"{100 * self.top1:.1f}", f"{100 * low:.1f}-{100 * high:.1f}", f"{100 * self.top5:.1f}"


def bootstrap_interval(shares: Sequence[float], counts: Sequence[int]) -> tuple[float, float]:
    """Where the mean of shares would lie in 95 % of test sets drawn from this one, image by image.

    A resample of hits and misses has a binomial number of hits, so that is drawn instead of the images.
    """
    drawn = np.random.default_rng(0).binomial(counts, shares, (RESAMPLES, len(counts))) / counts
    low, high = np.percentile(drawn.mean(axis=1), [LOW, HIGH])
    return float(low), float(high)
