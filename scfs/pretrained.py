from torch import Tensor, nn

from scfs.backbones import Backbone
from scfs.backbones import load_backbone as load
from scfs.preprocessing import Preprocessing

# B images, C channels, H W map height and width


class PretrainedBackbone(nn.Module):
    """A backbone with its weights, for use in other programs.

    Images are (B, 3, H, W) floats from 0 to 1, minus `mean` and divided by `std`. `size` is the side of the views it
    was trained on, None if unknown. In evaluation the shorter side is resized to size / `crop_pct`, by `interpolation`,
    and the centre is cropped.
    """

    def __init__(self, backbone: Backbone, size: int | None, preprocessing: Preprocessing):
        super().__init__()
        self.backbone, self.size = backbone, size
        self.mean, self.std = preprocessing.mean, preprocessing.std
        self.crop_pct, self.interpolation = preprocessing.crop_pct, preprocessing.interpolation
        self.name, self.layers, self.channels = backbone.name, backbone.layers, backbone.channels
        self.num_features = backbone.num_features

    def forward(self, images: Tensor) -> Tensor:
        """Pooled features (B, C)."""
        pooled: Tensor = self.backbone(images)[0]
        return pooled

    def maps(self, images: Tensor) -> dict[str, Tensor]:
        """The map (B, C, H, W) of every search layer, by the layer's name, shallow to deep."""
        return dict(zip(self.layers, self.backbone(images)[1], strict=True))


def load_backbone(path: str, *, name: str | None = None, network: str = "teacher") -> PretrainedBackbone:
    """The backbone of a run folder, a checkpoint, an exported file or another project's file, ready to evaluate.

    `name` is the timm model of another project's file; without it, the usual ones are tried.
    """
    loaded = load(str(path), name=name, network=network)
    return PretrainedBackbone(loaded.backbone, loaded.size, loaded.preprocessing).eval()
