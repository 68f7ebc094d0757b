from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor, nn

from scfs.method.heads import DataHead, LayerHead

# V any views, B images per process, C channels, H W map height and width


class Features(NamedTuple):
    """What an encoder says of a stack of views."""

    pooled: Tensor  # (V, B, C)
    maps: tuple[Tensor, ...]  # one (V, B, C, H, W) per search layer, shallow to deep


class Encoder(nn.Module):
    """Backbone, final head and one search head per layer. Student and teacher are both this.

    The backbone maps images to (pooled features, maps of the search layers). The head is absent where the data
    term is, and the search heads where no term looks at the maps: a parameter that no loss reaches stalls
    training on several processes.
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
