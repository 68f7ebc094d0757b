import itertools
from collections.abc import Iterable
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor, nn
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as F

from scfs.backbones import Backbone
from scfs.backbones import load_backbone as load
from scfs.data.centred import centred
from scfs.data.decode import Unreadable, decode, upright_rgb
from scfs.errors import UserError
from scfs.preprocessing import USUAL_SIZE, Preprocessing, resized_side

# B images, C channels, H W map height and width

AnImage = str | Path | Image.Image
Images = AnImage | Iterable[AnImage]


class PretrainedBackbone(nn.Module):
    """A backbone with its weights, for use in other programs.

    Images are (B, 3, H, W) floats from 0 to 1, minus `mean` and divided by `std`, as `load_images` returns them. `size`
    is the side of the views it was trained on, None if unknown. In evaluation the shorter side is resized to size /
    `crop_pct`, by `interpolation`, and the centre is cropped.
    """

    def __init__(self, backbone: Backbone, size: int | None, preprocessing: Preprocessing):
        super().__init__()
        self.backbone, self.size = backbone, size
        self.mean, self.std = preprocessing.mean, preprocessing.std
        self.crop_pct, self.interpolation = preprocessing.crop_pct, preprocessing.interpolation
        self.name, self.layers, self.channels = backbone.name, backbone.layers, backbone.channels
        self.num_features = backbone.num_features

    def __repr__(self) -> str:
        size = f", trained at {self.size} px" if self.size else ""
        return f"{type(self).__name__}({self.backbone.summary()}{size})"

    def forward(self, images: Tensor) -> Tensor:
        """Pooled features (B, C)."""
        pooled: Tensor = self.backbone(images)[0]
        return pooled

    def maps(self, images: Tensor) -> dict[str, Tensor]:
        """The map (B, C, H, W) of every search layer, by the layer's name, shallow to deep."""
        return dict(zip(self.layers, self.backbone(images)[1], strict=True))

    def preprocess(self, image: str | Path | Image.Image, *, size: int | None = None) -> Tensor:
        """An image file or a PIL image as a tensor (3, size, size), turned upright, resized, cropped and normalized.

        `size` is that of training, or 224 if it is unknown.
        """
        size = size or self.size or USUAL_SIZE
        image = upright_rgb(image) if isinstance(image, Image.Image) else load_image(image)
        image = F.resize(centred(image), [resized_side(size)], interpolation=InterpolationMode(self.interpolation))
        tensor = F.to_tensor(F.center_crop(image, [size, size]))
        return F.normalize(tensor, list(self.mean), list(self.std))

    def load_images(self, images: Images, *, size: int | None = None) -> Tensor:
        """Image files or PIL images as a batch (B, 3, size, size), as `preprocess` returns them, on its device."""
        tensors = [self.preprocess(image, size=size) for image in _each(images)]
        if not tensors:
            raise UserError("load_images was given no images; give at least one.")
        return torch.stack(tensors).to(next(self.parameters()).device)

    @torch.no_grad()
    def features(self, images: Images, *, batch_size: int = 64) -> Tensor:
        """Pooled features (images, C), on the CPU, of any number of image files or PIL images."""
        remaining, found = iter(_each(images)), []
        while batch := list(itertools.islice(remaining, batch_size)):
            found.append(self(self.load_images(batch)).float().cpu())
        return torch.cat(found) if found else torch.empty(0, self.num_features)


def _each(images: Images) -> Iterable[AnImage]:
    return [images] if isinstance(images, AnImage) else images


def load_image(path: str | Path) -> Image.Image:
    """An image file as an upright RGB image, decoded as in training."""
    try:
        return decode(Path(path).expanduser())
    except Unreadable as error:
        raise UserError(f"{error}; give an image file.") from None


def load_backbone(path: str, *, name: str | None = None, network: str = "teacher") -> PretrainedBackbone:
    """The backbone of a run folder, a checkpoint, an exported file or another project's file, ready to evaluate.

    `name` is the timm model of another project's file; without it, the usual ones are tried.
    """
    loaded = load(str(path), name=name, network=network)
    return PretrainedBackbone(loaded.backbone, loaded.size, loaded.preprocessing).eval()
