from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scfs.data.segmentation import VOID, LabelMap
from scfs.errors import UserError
from scfs.evaluate.accuracy import HIGH, LOW, RESAMPLES
from scfs.runs.metric import Metric

# K classes

Counts = NDArray[np.int64]  # (..., 3, K) pixels of a class that are found; that it has; that are taken for it
CHUNK = 100  # resamples at a time


def count_pixels(truth: LabelMap, predicted: LabelMap, num_classes: int) -> Counts:
    """The counts (3, K) of an image, without its void pixels."""
    kept = truth != VOID
    truth, predicted = truth[kept], predicted[kept]
    return np.stack(
        [np.bincount(each, minlength=num_classes) for each in (truth[truth == predicted], truth, predicted)]
    )


class SegmentationScore(NamedTuple):
    """Mean intersection over union, its 95 % interval, and pixel accuracy, all as fractions."""

    miou: float
    interval: tuple[float, float]
    accuracy: float
    per_class: list[float]  # intersection over union; NaN for a class that is neither in the images nor predicted

    @classmethod
    def of(cls, counts: Counts, *, seed: int = 0) -> "SegmentationScore":
        """From the counts (images, 3, K) of all images.

        Classes that are neither in the images nor predicted are left out of the mean.
        """
        total = counts.sum(axis=0)
        found, true, _ = total.sum(axis=1).tolist()
        if not true:
            raise UserError("All pixels of the val images are void; give images with labels.")
        return cls(
            miou=float(np.nanmean(intersection_over_union(total))),
            interval=_interval(counts, seed),
            accuracy=found / true,
            per_class=intersection_over_union(total).tolist(),
        )

    def metrics(self, prefix: str) -> list[Metric]:
        """As evaluations return them."""
        return [
            Metric(f"{prefix} mIoU", self.miou, self.interval),
            Metric(f"{prefix} pixel accuracy", self.accuracy),
        ]

    def by_class(self, classes: Sequence[str]) -> dict[str, float | None]:
        """Intersection over union by name; None for classes that are left out of the mean."""
        return {name: None if np.isnan(value) else value for name, value in zip(classes, self.per_class, strict=True)}

    def absent(self, classes: Sequence[str]) -> list[str]:
        """The classes that are left out of the mean."""
        return [name for name, value in self.by_class(classes).items() if value is None]


def intersection_over_union(counts: NDArray[Any]) -> NDArray[np.float64]:
    """Of each class, from counts (..., 3, K): (..., K), NaN where the class is neither there nor predicted."""
    found, true, taken = np.moveaxis(counts.astype(np.float64), -2, 0)
    union = true + taken - found
    return np.divide(found, union, out=np.full_like(union, np.nan), where=union > 0)


def _interval(counts: Counts, seed: int) -> tuple[float, float]:
    """95 % interval of the mean by a Bayesian bootstrap over images: each has a random weight of mean 1.

    Drawing images would leave out the rare classes of those not drawn, and change what the mean is of.
    """
    random, flat, means = np.random.default_rng(seed), counts.reshape(len(counts), -1).astype(np.float64), []
    for _ in range(0, RESAMPLES, CHUNK):
        weights = random.exponential(size=(CHUNK, len(counts)))
        resampled = (weights @ flat).reshape(CHUNK, *counts.shape[1:])
        means.append(np.nanmean(intersection_over_union(resampled), axis=-1))
    low, high = np.percentile(np.concatenate(means), [LOW, HIGH])
    return float(low), float(high)
