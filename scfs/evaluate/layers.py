import torch
from torch import Tensor, nn

from scfs.backbones import Backbone
from scfs.evaluate.features import LabelledFeatures

FINAL = "final"


class LayerFeatures(nn.Module):
    """A backbone that gives the spatial means of its search layers' maps and the pooled feature, side by side."""

    def __init__(self, backbone: Backbone):
        super().__init__()
        self.backbone = backbone
        self.widths = dict(zip([*backbone.layers, FINAL], [*backbone.channels, backbone.num_features], strict=True))

    def forward(self, images: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """images: (B, 3, H, W) -> (B, all the channels), and the maps."""
        pooled, maps = self.backbone(images)
        return torch.cat([*(each.mean(dim=(-2, -1)) for each in maps), pooled], dim=1), maps

    def split(self, labelled: LabelledFeatures) -> dict[str, LabelledFeatures]:
        """The features of each layer, shallow to deep, and the final ones."""
        parts = labelled.features.split(list(self.widths.values()), dim=1)
        return {name: LabelledFeatures(part, labelled.labels) for name, part in zip(self.widths, parts, strict=True)}
