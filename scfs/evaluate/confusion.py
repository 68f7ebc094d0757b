"""Which classes a classifier takes for which, as results record it."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

CONFUSION, PER_CLASS = "confusion", "per class"  # in the details of a result
MAX_CLASSES = 100  # with more, only the accuracy of each class is recorded


def confusion_details(predictions: Tensor, labels: Tensor, classes: Sequence[str]) -> dict[str, Any]:
    """Counts of images by class (rows) and prediction (columns); of many classes, the accuracy of each.

    predictions, labels: (images,), indices in the classes. Classes without an image have no accuracy.
    """
    count = len(classes)
    counts = torch.bincount(labels * count + predictions, minlength=count * count).view(count, count)
    if count <= MAX_CLASSES:
        return {CONFUSION: {"classes": list(classes), "counts": counts.tolist()}}
    images = counts.sum(dim=1).tolist()
    rows = zip(classes, counts.diagonal().tolist(), images, strict=True)
    return {PER_CLASS: {name: right / total for name, right, total in rows if total}}
