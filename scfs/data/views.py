import math
from dataclasses import dataclass
from random import Random
from typing import Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional as F

from scfs.data.centred import MAX_RATIO, centred
from scfs.data.colours import as_row, coloured, without_colours
from scfs.data.render import BLUR_RADII, Pixels, ViewDraw, render_fast, render_reference
from scfs.preprocessing import IMAGENET_MEAN, IMAGENET_STD, resized_side
from scfs.view_batch import ViewBatch

# G global views, N local views, V any views, B images per process

NUM_GLOBAL_VIEWS = 2


def normalize_views(batch: ViewBatch) -> ViewBatch:
    """The same batch with its views as normalised floats, coloured first if the loader left that to the device."""
    views = [batch.global_views, batch.local_views]
    if batch.colours.numel():
        rows = batch.colours.split([len(each) for each in views])
        views = [coloured(*each) for each in zip(views, rows, strict=True)]
    global_views, local_views = (normalize(each) for each in views)
    return batch._replace(global_views=global_views, local_views=local_views, colours=batch.colours[..., :0])


@dataclass(frozen=True)
class ViewKind:
    """How views of one kind are drawn: the paper's augmentation, with DINO's probabilities."""

    size: int
    scale: tuple[float, float]  # fraction of the image's area
    blur: float  # probability
    solarize: float = 0.0  # probability


class MultiCrop:
    """Makes the global and local views of an image.

    Drawing is separate from rendering, so that the box of each view is known and the two renderers can be compared. All
    randomness comes from the seed of the call.
    """

    jitter = (("brightness", 0.6, 1.4), ("contrast", 0.6, 1.4), ("saturation", 0.8, 1.2), ("hue", -0.1, 0.1))
    jitter_probability, grey_probability, flip_probability = 0.8, 0.2, 0.5

    def __init__(
        self,
        *,
        global_size: int,
        local_size: int,
        num_local_views: int,
        global_scale: tuple[float, float],
        local_scale: tuple[float, float],
        blur: float = 1.0,
        path: Literal["fast", "reference"] = "fast",
        colours: Literal["loader", "device"] = "loader",
    ):
        """blur: factor of the blur radii; 0: no blur."""
        self.kinds = [
            ViewKind(global_size, global_scale, blur=1.0),
            ViewKind(global_size, global_scale, blur=0.1, solarize=0.2),
            *[ViewKind(local_size, local_scale, blur=0.5)] * num_local_views,
        ]
        self.local_size, self.blur, self.path, self.colours = local_size, blur, path, colours

    def __call__(self, image: Image.Image, seed: int) -> ViewBatch:
        """The views of one image; equal seeds give equal views."""
        random = Random(seed)
        draws = [self.draw(image.size, kind, random) for kind in self.kinds]
        rows = torch.empty(len(draws), 0)
        if self.colours == "device":
            rows = torch.tensor([as_row(draw) for draw in draws])
            draws = [without_colours(draw) for draw in draws]
        views = self.render(image, draws)
        boxes = torch.tensor([_relative_box(draw.box, image.size) for draw in draws])  # (V, 4)
        flips = torch.tensor([draw.flip for draw in draws])  # (V,)
        return ViewBatch(
            _stacked(views[:NUM_GLOBAL_VIEWS], self.kinds[0].size),
            _stacked(views[NUM_GLOBAL_VIEWS:], self.local_size),
            boxes[:NUM_GLOBAL_VIEWS],
            boxes[NUM_GLOBAL_VIEWS:],
            flips[:NUM_GLOBAL_VIEWS],
            flips[NUM_GLOBAL_VIEWS:],
            rows,
        )

    def draw(self, image_size: tuple[int, int], kind: ViewKind, random: Random) -> ViewDraw:
        """Draw one view of an image (width, height), with torchvision's distributions.

        Not torchvision's own draws: hundreds of scalar tensors for ten views cost as much as decoding the image.
        """
        jitter = [(name, random.uniform(low, high)) for name, low, high in self.jitter]
        random.shuffle(jitter)
        return ViewDraw(
            box=_draw_box(image_size, kind.scale, random),
            flip=random.random() < self.flip_probability,
            jitter=tuple(jitter) if random.random() < self.jitter_probability else (),
            grey=random.random() < self.grey_probability,
            blur_radius=self.blur * random.uniform(*BLUR_RADII) or None if random.random() < kind.blur else None,
            solarize=random.random() < kind.solarize,
        )

    def render(self, image: Image.Image, draws: list[ViewDraw]) -> list[Pixels]:
        """Every drawn view (size, size, 3), in the order of the kinds."""
        sizes = [kind.size for kind in self.kinds]
        if self.path == "reference":
            return [render_reference(image, draw, size) for draw, size in zip(draws, sizes, strict=True)]
        pixels = np.asarray(image)
        with torch.inference_mode():  # saves a fifth of a small resize's time
            return [render_fast(pixels, draw, size) for draw, size in zip(draws, sizes, strict=True)]


def normalize(images: Tensor) -> Tensor:
    """Normalise uint8 images (..., 3, H, W) with ImageNet's mean and standard deviation; floats stay unchanged."""
    if images.is_floating_point():
        return images
    rows = images.movedim(-3, -1).flatten(-2)  # (..., H, W * 3): whole rows at a time take a quarter of the time
    # Filled on the device: a copy of a tensor from the host would wait for the device.
    mean, std = (
        torch.cat([torch.full((1,), level, device=images.device) for level in levels]).mul(255).repeat(images.shape[-1])
        for levels in (IMAGENET_MEAN, IMAGENET_STD)
    )
    return rows.float().sub_(mean).div_(std).unflatten(-1, (-1, 3)).movedim(-1, -3)


def as_tensor(image: Image.Image) -> Tensor:
    """An RGB image as (3, H, W), uint8."""
    tensor: Tensor = F.pil_to_tensor(image)
    return tensor


def centre_view(image: Image.Image, size: int) -> Tensor:
    """The evaluation view as uint8: shorter side to size x 256/224 (the paper: 256 and 224), then a centre crop."""
    image = F.resize(centred(image), [resized_side(size)], interpolation=InterpolationMode.BICUBIC)
    return as_tensor(F.center_crop(image, [size, size]))


def square_view(image: Image.Image, size: int) -> Tensor:
    """The whole image resized to a square, as uint8: nothing is cut off."""
    if max(image.size) > MAX_RATIO * min(image.size):  # the longer side first: Pillow would start with the width
        image = image.resize(
            (image.width, size) if image.height > image.width else (size, image.height), Image.Resampling.BICUBIC
        )
    return as_tensor(F.resize(image, [size, size], interpolation=InterpolationMode.BICUBIC))


def crop_and_flip(image: Image.Image, size: int, seed: int) -> Tensor:
    """The training view of classifiers as uint8: a random crop of 0.08 to 1 of the area, flipped half of the time."""
    random = Random(seed)
    box = _draw_box(image.size, (0.08, 1.0), random)
    draw = ViewDraw(box, random.random() < 0.5, jitter=(), grey=False, blur_radius=None, solarize=False)
    with torch.inference_mode():
        return torch.from_numpy(render_fast(np.asarray(image), draw, size)).permute(2, 0, 1)


def _draw_box(image_size: tuple[int, int], scale: tuple[float, float], random: Random) -> tuple[int, int, int, int]:
    """The box of a random resized crop: a fraction of the area, and a log-uniform aspect ratio from 3:4 to 4:3."""
    image_width, image_height = image_size
    for _ in range(10):
        area = random.uniform(*scale) * image_width * image_height
        ratio = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        width, height = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < width <= image_width and 0 < height <= image_height:
            top, left = random.randint(0, image_height - height), random.randint(0, image_width - width)
            return top, left, height, width
    # None fits, as in a panorama: the largest centred box with an allowed aspect ratio.
    width, height = min(image_width, round(image_height * 4 / 3)), min(image_height, round(image_width * 4 / 3))
    return (image_height - height) // 2, (image_width - width) // 2, height, width


def _stacked(views: list[Pixels], size: int) -> Tensor:
    """(size, size, 3) each -> (V, 3, size, size), channels last in memory."""
    stack = np.stack(views) if views else np.empty((0, size, size, 3), np.uint8)
    return torch.from_numpy(stack).permute(0, 3, 1, 2)


def _relative_box(box: tuple[int, int, int, int], image_size: tuple[int, int]) -> tuple[float, float, float, float]:
    top, left, height, width = box
    image_width, image_height = image_size
    return (left / image_width, top / image_height, (left + width) / image_width, (top + height) / image_height)
