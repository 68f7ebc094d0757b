import torch
from torch import Tensor, nn

from scfs.backbones import Backbone
from scfs.evaluate.features import LabelledFeatures

FINAL = "final"


class LayerFeatures(nn.Module):
    """A backbone that returns the pooled maps of its search layers, if requested, followed by its pooled feature."""

    def __init__(self, backbone: Backbone, *, all_layers: bool):
        super().__init__()
        self.backbone = backbone
        searched = dict(zip(backbone.layers, backbone.channels, strict=True)) if all_layers else {}
        self.widths = {**searched, FINAL: backbone.num_features}

    def forward(self, images: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """images: (B, 3, H, W) -> (B, all the channels), and the maps."""
        pooled, maps = self.backbone(images)
        searched = maps if len(self.widths) > 1 else ()
        return torch.cat([*(each.mean(dim=(-2, -1)) for each in searched), pooled], dim=1), maps

    def split(self, labelled: LabelledFeatures) -> dict[str, LabelledFeatures]:
        """The features of each layer, shallow to deep, and the final ones."""
        parts = labelled.features.split(list(self.widths.values()), dim=1)
        return {name: LabelledFeatures(part, labelled.labels) for name, part in zip(self.widths, parts, strict=True)}
