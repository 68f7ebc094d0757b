from typing import NamedTuple

import torch
from torch import Tensor

from scfs.data.loader import derive_seed
from scfs.data.segmentation import LabelMap
from scfs.distributed import gather
from scfs.evaluate.knn.neighbours import nearest
from scfs.evaluate.segment.cells import class_fractions

# B images, P positions in the memory, C channels, h w map height and width, K classes


class Memory(NamedTuple):
    """Features of positions of train images, and the classes in their cells (Hummingbird, Balazevic et al. 2023)."""

    features: Tensor  # (P, C)
    fractions: Tensor  # (P, K) of each class, adding up to 1

    @torch.no_grad()
    def votes(self, maps: Tensor, *, k: int, temperature: float) -> Tensor:
        """The classes of every position by a vote of its nearest neighbours: (B, C, h, w) -> (B, K, h, w).

        Neighbours by cosine similarity; each gives its fractions, weighted by the softmax of cosine / temperature.
        """
        batch, _, height, width = maps.shape
        queries = maps.movedim(1, -1).flatten(0, 2)  # (B h w, C)
        votes = [
            torch.einsum("qk,qkc->qc", (cosines / temperature).softmax(dim=1), self.fractions[indices])
            for _, cosines, indices in nearest(queries, self.features, min(k, len(self.features)))
        ]
        return torch.cat(votes).view(batch, height, width, -1).movedim(-1, 1)


class MemoryBuilder:
    """Collects the memory image by image; all processes together make one of at most `limit` positions."""

    def __init__(self, *, num_classes: int, num_images: int, limit: int, seed: int):
        self.num_classes, self.num_images, self.limit, self.seed = num_classes, num_images, limit, seed
        self.rows: dict[int, Memory] = {}  # by image

    def quota(self, index: int) -> int:
        """How many positions an image may give: nearly the same number for each, and together the limit."""
        before, after = (each * self.limit // self.num_images for each in (index, index + 1))
        return after - before

    def add(self, index: int, maps: Tensor, label_map: LabelMap) -> None:
        """Keep positions of an image: its maps (C, h, w) and its label map."""
        height, width = maps.shape[-2:]
        fractions = class_fractions(label_map, (height, width), self.num_classes)
        chosen = choose_positions(fractions, self.quota(index), derive_seed(self.seed, index))
        self.rows[index] = Memory(maps.flatten(1).T.cpu()[chosen], fractions[chosen])

    def build(self, device: torch.device) -> Memory:
        """The memory of all processes, in the order of the images, on the device of the maps to classify."""
        rows = {index: part for shard in gather(self.rows) for index, part in shard.items()}
        features, fractions = zip(*(rows[index] for index in sorted(rows)), strict=True)
        return Memory(torch.cat(features).to(device), torch.cat(fractions).to(device))


def choose_positions(fractions: Tensor, limit: int, seed: int) -> Tensor:
    """The indices, ascending, of the positions of an image to keep, at most `limit`; those that are all void never.

    As in Hummingbird, positions with classes that fill less of the image are more likely: the smallest scores are
    kept, and a score is a random number times how many positions have the classes of this one. fractions: (h * w, K).
    """
    [usable] = torch.nonzero(fractions.sum(dim=1), as_tuple=True)
    if len(usable) <= limit:
        return usable
    present = (fractions[usable] > 0).double()
    scores = present @ present.sum(dim=0)
    scores *= torch.rand(len(usable), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return usable[scores.argsort()[:limit]].sort().values
