from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor, nn

from scfs.method.heads import DataHead, LayerHead

# V any views, B images per process, C channels, H W map height and width


class Features(NamedTuple):
    """Pooled features and maps of a stack of views."""

    pooled: Tensor  # (V, B, C)
    maps: tuple[Tensor, ...]  # one (V, B, C, H, W) per search layer, shallow to deep


class Encoder(nn.Module):
    """Backbone, data head and one search head per layer; student and teacher are both instances of it.

    The backbone maps images to (pooled features, maps of the search layers). `head` is None without the data term, and
    `search_heads` is empty where no term uses the maps: DistributedDataParallel hangs on parameters without a gradient.
    """

    def __init__(self, backbone: nn.Module, head: DataHead | None, search_heads: Sequence[LayerHead]):
        super().__init__()
        self.backbone = backbone
        self.head = head
        self.search_heads = nn.ModuleList(search_heads)

    def forward(self, views: Tensor) -> Features:
        """views: (V, B, 3, H, W), all of one size."""
        lead = views.shape[:2]
        pooled, maps = self.backbone(views.flatten(0, 1))
        return Features(pooled.unflatten(0, lead), tuple(m.unflatten(0, lead) for m in maps))
