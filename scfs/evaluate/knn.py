from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from scfs.evaluate.features import LabelledFeatures


class Accuracy(NamedTuple):
    """Shares of images whose class is the first guess, or among the first five."""

    top1: float
    top5: float


@torch.no_grad()
def knn_accuracy(
    train: LabelledFeatures,
    val: LabelledFeatures,
    *,
    num_classes: int,
    ks: Sequence[int] = (20,),
    temperature: float = 0.07,
    chunk: int = 256,
) -> dict[int, Accuracy]:
    """Weighted nearest-neighbour classification: each neighbour votes exp(cosine / temperature).

    One pass serves every k; a k above the number of training images uses them all. The similarities of `chunk`
    images at a time are held, never all of them.
    """
    keys = F.normalize(train.features, dim=-1)
    largest = min(max(ks), len(keys))
    hits = {k: torch.zeros(2) for k in ks}
    for start in range(0, len(val.features), chunk):
        queries = F.normalize(val.features[start : start + chunk], dim=-1)
        truth = val.labels[start : start + chunk]
        cosines, places = (queries @ keys.T).topk(largest, dim=-1)  # (chunk, largest), most alike first
        # Votes relative to the nearest neighbour: the ranking is the same and nothing overflows.
        votes = ((cosines - cosines[:, :1]) / temperature).exp()
        classes = train.labels[places]
        for k in ks:
            hits[k] += _hits(votes[:, :k], classes[:, :k], truth, num_classes)
    return {k: Accuracy(*(hits[k] / len(val.features)).tolist()) for k in ks}


def _hits(votes: Tensor, classes: Tensor, truth: Tensor, num_classes: int) -> Tensor:
    """How many queries have their class first, and among the first five: (2,)."""
    scores = torch.zeros(len(votes), num_classes).scatter_add_(1, classes, votes)
    ranked = scores.topk(min(5, num_classes), dim=-1).indices == truth.unsqueeze(1)
    return torch.stack([ranked[:, 0].sum(), ranked.any(dim=1).sum()]).float()
