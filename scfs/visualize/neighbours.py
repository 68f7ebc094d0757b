from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from scfs.evaluate.knn.neighbours import nearest


class Neighbours(NamedTuple):
    """The nearest images of each query, most similar first."""

    indices: Tensor  # (queries, k), rows of the features that were searched
    cosines: Tensor  # (queries, k)

    def __repr__(self) -> str:
        queries, k = self.indices.shape
        return f"Neighbours(of {queries} queries, {k} each)"


def nearest_images(queries: Tensor, features: Tensor, k: int) -> Neighbours:
    """The k rows of features (images, C) of highest cosine similarity with each query (queries, C)."""
    found = [(cosines, indices) for _, cosines, indices in nearest(queries, features, min(k, len(features)))]
    cosines, indices = (torch.cat(part) for part in zip(*found, strict=True))
    return Neighbours(indices, cosines)


def nearest_others(features: Tensor, rows: Sequence[int], k: int) -> Neighbours:
    """The same for queries that are rows of the features themselves, each without itself."""
    queries = torch.tensor(rows)
    k = min(k, len(features) - 1)
    found = nearest_images(features[queries], features, k + 1)
    # Among equal images others may rank first, so the query is not always the first, or is missing.
    is_other = found.indices != queries.unsqueeze(1)  # (queries, k + 1)
    is_other[is_other.all(dim=1), -1] = False
    return Neighbours(*(part[is_other].view(len(rows), k) for part in found))


def choose_queries(labels: Tensor, count: int) -> list[int]:
    """Rows to show the neighbours of: evenly spaced, of different classes where possible."""
    spaced = torch.linspace(0, len(labels) - 1, min(count, len(labels))).round().long().tolist()
    chosen: list[int] = []
    seen: set[int] = set()
    for row in [*spaced, *range(len(labels))]:
        if len(chosen) < count and row not in chosen and int(labels[row]) not in seen:
            chosen.append(row)
            seen |= {int(labels[row])} - {-1}
    chosen += [row for row in spaced if row not in chosen]  # fewer classes than queries
    return sorted(chosen[:count])
