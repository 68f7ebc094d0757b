from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scfs.backbones import Backbone, Loaded
from scfs.errors import UserError

# B images, C channels, H W (h w) map height and width

SIDE = 16  # positions a side of the largest map, with automatic size


class LayerMaps(nn.Module):
    """The maps of some layers of a backbone as one.

    They are resized to the largest of them, normalised to unit length at every position, and concatenated.
    """

    def __init__(self, backbone: Backbone, layers: Sequence[str]):
        super().__init__()
        self.backbone = backbone.with_layers(layers)
        self.num_channels = sum(self.backbone.channels)

    @property
    def layers(self) -> list[str]:
        """The names of the layers, shallow to deep."""
        return self.backbone.layers

    def forward(self, images: Tensor) -> Tensor:
        """images: (B, 3, H, W) -> (B, C, h, w)."""
        _, maps = self.backbone(images)
        side = max((each.shape[-2:] for each in maps), key=lambda shape: shape.numel())
        resized = [each.float() if each.shape[-2:] == side else _resize(each.float(), side) for each in maps]
        return torch.cat([F.normalize(each, dim=1) for each in resized], dim=1)

    def shape(self, size: int) -> tuple[int, int]:
        """Height and width of the maps of square images."""
        with torch.device("meta"):
            twin = LayerMaps(Backbone(self.backbone.name), self.layers).eval()
            height, width = twin(torch.empty(1, 3, size, size)).shape[-2:]
        return height, width


def _resize(maps: Tensor, shape: Sequence[int]) -> Tensor:
    return F.interpolate(maps, tuple(shape), mode="bilinear", align_corners=False)


def choose_layers(backbone: Backbone, setting: Sequence[str] | str) -> Sequence[str]:
    """The layers as set or, with auto, the two deepest search layers."""
    # Two together were better than either alone, and as good as three at four times the positions.
    return backbone.layers[-2:] if setting == "auto" else setting


def choose_size(loaded: Loaded, layers: Sequence[str], setting: int | str) -> int:
    """The side of the images: as set or, with auto, as in training, or more for 16 positions a side of the largest map.

    A network that cannot take more gets what it was trained on.
    """
    trained = loaded.evaluated_size(setting)
    if setting != "auto":
        return trained
    reductions = {entry["module"]: entry["reduction"] for entry in loaded.backbone.net.feature_info}
    try:
        return loaded.evaluated_size(max(trained, SIDE * min(reductions[layer] for layer in layers)))
    except UserError:
        return trained
