from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from scfs.distributed import gather_rows, gathered_blocks, world_size
from scfs.evaluate.accuracy import Accuracy
from scfs.evaluate.features import LabelledFeatures

HEADLINE_K = 20  # the paper's
QUERIES = 2048  # at a time


@torch.no_grad()
def knn_accuracy(
    train: LabelledFeatures,
    val: LabelledFeatures,
    *,
    num_classes: int,
    ks: Sequence[int] = (HEADLINE_K,),
    temperature: float = 0.07,
    indices: Tensor | None = None,
) -> dict[int, Accuracy]:
    """Weighted nearest-neighbour classification: each neighbour votes exp(cosine / temperature).

    One pass serves every k; a k above the number of training images uses them all. indices: of the train images, in
    their source; if given, train and val are this process's shards, and neighbours are found in those of all processes.
    """
    hits: dict[int, list[Tensor]] = {k: [] for k in ks}
    blocks = _blocks(*val) if indices is None else gathered_blocks(*val, rows=-(-QUERIES // world_size()))
    for queries, truth in blocks:
        cosines, classes = _neighbours(queries, train, max(ks), indices)
        # Votes relative to the nearest neighbour: the ranking is the same and nothing overflows.
        votes = ((cosines - cosines[:, :1]) / temperature).exp()
        for k in ks:
            scores = votes.new_zeros(len(truth), num_classes).scatter_add_(1, classes[:, :k], votes[:, :k])
            # Not `scores == 0`: the vote of a distant neighbour may underflow, and still counts.
            no_vote = torch.ones_like(scores, dtype=torch.bool).scatter_(1, classes[:, :k], False)
            hits[k].append(ranked_hits(scores.masked_fill_(no_vote, float("-inf")), truth).cpu())
    return {k: Accuracy.of(torch.cat(hits[k])) for k in ks}


def _blocks(features: Tensor, labels: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    return zip(features.split(QUERIES), labels.split(QUERIES), strict=True)


def _neighbours(queries: Tensor, train: LabelledFeatures, k: int, indices: Tensor | None) -> tuple[Tensor, Tensor]:
    """The cosines (B, k) and classes (B, k) of the nearest train images of all processes.

    Each process searches its own; the candidates of all are merged. Among equal cosines the first in the source comes
    first, so that the result does not depend on the number of processes.
    """
    device = queries.device
    [(_, cosines, rows)] = nearest(queries, train.features, min(k, len(train.features)), query_chunk=len(queries))
    rows = rows.to(train.labels.device)
    classes = train.labels[rows].to(device)
    if indices is None or world_size() == 1:
        return cosines, classes
    found = (cosines, classes, indices[rows].to(device))
    cosines, classes, order = (gather_rows(each.T.contiguous()).T for each in found)
    by_index = order.argsort(dim=1)
    cosines, best = cosines.gather(1, by_index).sort(dim=1, descending=True, stable=True)
    return cosines[:, :k], classes.gather(1, by_index).gather(1, best)[:, :k]


def nearest(
    queries: Tensor, keys: Tensor, k: int, *, query_chunk: int = QUERIES, key_chunk: int = 4096
) -> Iterator[tuple[int, Tensor, Tensor]]:
    """The k keys of highest cosine for each query, chunk by chunk: index of the first query, cosines, indices of keys.

    Among equal cosines the first keys come first. Memory is that of one chunk of queries against one chunk of keys,
    however many there are; the keys may be on another device.
    """
    scales = (1 / keys.norm(dim=-1).clamp(min=1e-12)).to(queries.device)
    for start in range(0, len(queries), query_chunk):
        units = F.normalize(queries[start : start + query_chunk], dim=-1)
        columns = units.T.contiguous()  # keys @ columns takes less time than units @ keys.T
        cosines, indices = units.new_empty(len(units), 0), units.new_empty(len(units), 0, dtype=torch.long)
        for first in range(0, len(keys), key_chunk):
            chunk = slice(first, first + key_chunk)
            products = keys[chunk].to(units.device) @ columns
            products.mul_(scales[chunk].unsqueeze(1))  # (keys, queries)
            if cosines.shape[1] < k:
                lowest = products.topk(min(k, len(products)), dim=0).values[-1]
                values, rows = _selected(products, products >= lowest)
            else:
                values, rows = _selected(products, products > cosines[:, -1])
            # Sorted stably, not by topk, whose order of equal cosines is arbitrary.
            cosines, best = torch.cat([cosines, values], dim=1).sort(dim=1, descending=True, stable=True)
            kept = min(k, first + len(products))
            cosines, indices = cosines[:, :kept], torch.cat([indices, rows + first], dim=1).gather(1, best[:, :kept])
        yield start, cosines, indices


def _selected(values: Tensor, selection: Tensor) -> tuple[Tensor, Tensor]:
    """The selected values of each column of (N, B), as rows (B, M) padded with -inf, and their indices, ascending.

    Once good neighbours are known this takes a fraction of the time of ranking all values.
    """
    indices, rows = selection.nonzero(as_tuple=True)
    order = rows.argsort(stable=True)
    indices, rows = indices[order], rows[order]
    counts = rows.bincount(minlength=values.shape[1])
    shape = (values.shape[1], int(counts.max()))
    nth = torch.arange(len(rows), device=rows.device) - (counts.cumsum(0) - counts)[rows]
    found, found_at = values.new_full(shape, float("-inf")), rows.new_zeros(shape)
    found[rows, nth], found_at[rows, nth] = values[indices, rows], indices
    return found, found_at


def ranked_hits(scores: Tensor, truth: Tensor) -> Tensor:
    """Whether each image's class has the highest score, and whether one of the five highest: (images, 2) bool.

    A class with a score of -inf is never among them.
    """
    highest = scores.topk(min(5, scores.shape[1]), dim=-1)
    ranked = (highest.indices == truth.unsqueeze(1)) & (highest.values > float("-inf"))
    return torch.stack([ranked[:, 0], ranked.any(dim=1)], dim=1)
