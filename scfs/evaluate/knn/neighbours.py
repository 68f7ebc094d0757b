from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from scfs.evaluate.accuracy import Accuracy
from scfs.evaluate.features import LabelledFeatures

HEADLINE_K = 20  # the paper's


@torch.no_grad()
def knn_accuracy(
    train: LabelledFeatures,
    val: LabelledFeatures,
    *,
    num_classes: int,
    ks: Sequence[int] = (HEADLINE_K,),
    temperature: float = 0.07,
) -> dict[int, Accuracy]:
    """Weighted nearest-neighbour classification: each neighbour votes exp(cosine / temperature).

    One pass serves every k; a k above the number of training images uses them all.
    """
    hits: dict[int, list[Tensor]] = {k: [] for k in ks}
    for start, cosines, indices in nearest(val.features, train.features, min(max(ks), len(train.features))):
        truth = val.labels[start : start + len(indices)]
        # Votes relative to the nearest neighbour: the ranking is the same and nothing overflows.
        votes = ((cosines - cosines[:, :1]) / temperature).exp()
        classes = train.labels[indices]
        for k in ks:
            scores = torch.zeros(len(truth), num_classes).scatter_add_(1, classes[:, :k], votes[:, :k])
            # Not `scores == 0`: the vote of a distant neighbour may underflow, and still counts.
            no_vote = torch.ones_like(scores, dtype=torch.bool).scatter_(1, classes[:, :k], False)
            hits[k].append(ranked_hits(scores.masked_fill_(no_vote, float("-inf")), truth))
    return {k: Accuracy.of(torch.cat(hits[k])) for k in ks}


def nearest(
    queries: Tensor, keys: Tensor, k: int, *, query_chunk: int = 2048, key_chunk: int = 4096
) -> Iterator[tuple[int, Tensor, Tensor]]:
    """The k keys of highest cosine for each query, chunk by chunk: index of the first query, cosines, indices of keys.

    Memory is that of one chunk of queries against one chunk of keys, however many there are.
    """
    scales = 1 / keys.norm(dim=-1).clamp(min=1e-12)
    for start in range(0, len(queries), query_chunk):
        units = F.normalize(queries[start : start + query_chunk], dim=-1)
        columns = units.T.contiguous()  # keys @ columns takes less time than units @ keys.T
        cosines, indices = torch.empty(len(units), 0), torch.empty(len(units), 0, dtype=torch.long)
        for first in range(0, len(keys), key_chunk):
            chunk = slice(first, first + key_chunk)
            products = (keys[chunk] @ columns).mul_(scales[chunk].unsqueeze(1))  # (keys, queries)
            if cosines.shape[1] < k:
                values, rows = products.T.topk(min(k, len(products)), dim=-1)
            else:
                values, rows = _above(products, cosines[:, -1])
            cosines = torch.cat([cosines, values], dim=1)
            indices = torch.cat([indices, rows + first], dim=1)
            cosines, best = cosines.topk(min(k, cosines.shape[1]), dim=-1)
            indices = indices.gather(1, best)
        yield start, cosines, indices


def _above(values: Tensor, threshold: Tensor) -> tuple[Tensor, Tensor]:
    """The values (N, B) above the threshold (B,) of their column, as rows (B, M) padded with -inf, and their indices.

    Once good neighbours are known this takes a fraction of the time of ranking all values.
    """
    indices, rows = (values > threshold).nonzero(as_tuple=True)
    order = rows.argsort(stable=True)
    indices, rows = indices[order], rows[order]
    counts = rows.bincount(minlength=len(threshold))
    shape = (len(threshold), int(counts.max()))
    nth = torch.arange(len(rows)) - (counts.cumsum(0) - counts)[rows]
    found, found_at = values.new_full(shape, float("-inf")), torch.zeros(shape, dtype=torch.long)
    found[rows, nth], found_at[rows, nth] = values[indices, rows], indices
    return found, found_at


def ranked_hits(scores: Tensor, truth: Tensor) -> Tensor:
    """Whether each image's class has the highest score, and whether one of the five highest: (images, 2) bool.

    A class with a score of -inf is never among them.
    """
    highest = scores.topk(min(5, scores.shape[1]), dim=-1)
    ranked = (highest.indices == truth.unsqueeze(1)) & (highest.values > float("-inf"))
    return torch.stack([ranked[:, 0], ranked.any(dim=1)], dim=1)
