"""Intervals of means over images, by a Bayesian bootstrap."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from scfs.evaluate.accuracy import HIGH, LOW, RESAMPLES

Values = NDArray[np.float64]
CHUNK = 100  # resamples at a time


def resampled_means(values: Values) -> Values:
    """Means (resamples, columns) of values (images, columns) by a Bayesian bootstrap: each image has a random weight.

    Views of one image resemble each other, so images are weighted, not views. NaN: the image has no such value.
    Calls with equal numbers of images draw equal weights.
    """
    random, known = np.random.default_rng(0), ~np.isnan(values)
    filled, means = np.where(known, values, 0.0), []
    for _ in range(0, RESAMPLES, CHUNK):
        weights = random.exponential(size=(CHUNK, len(values)))
        means.append(weights @ filled / np.maximum(weights @ known, 1e-300))
    return np.concatenate(means)


def interval(resampled: Values) -> Values:
    """The 95 % interval of each column: (columns, 2)."""
    return np.percentile(resampled, [LOW, HIGH], axis=0).T


def mean_with_interval(values: Sequence[float]) -> tuple[float, tuple[float, float]]:
    """The mean of one value per image, and its 95 % interval."""
    [[low, high]] = interval(resampled_means(np.asarray(values, np.float64)[:, None])).tolist()
    return float(np.mean(values)), (low, high)
