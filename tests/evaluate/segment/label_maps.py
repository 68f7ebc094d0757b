"""Label maps that tests draw at random."""

import numpy as np

from scfs.data.segmentation import VOID


def label_map(seed, shape, classes=4, void=0.1):
    random = np.random.default_rng(seed)
    labels = random.integers(0, classes, shape).astype(np.uint8)
    labels[random.uniform(size=shape) < void] = VOID
    return labels
