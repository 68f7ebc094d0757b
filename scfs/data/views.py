from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from PIL import Image, ImageFilter
from torch import Tensor
from torchvision.transforms import InterpolationMode, v2
from torchvision.transforms.v2 import functional as F

# G global views, N local views, V any views, B images per process

NUM_GLOBAL_VIEWS = 2
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class ViewBatch(NamedTuple):
    """Views of B images, and where in its image each was cut. For one image, the same without the B axis."""

    global_views: Tensor  # (G, B, 3, 224, 224)
    local_views: Tensor  # (N, B, 3, 96, 96); N may be 0
    global_boxes: Tensor  # (G, B, 4) x0 y0 x1 y1 in the image, from 0 to 1
    local_boxes: Tensor  # (N, B, 4)
    global_flips: Tensor  # (G, B) bool
    local_flips: Tensor  # (N, B) bool

    def to(self, device: torch.device) -> "ViewBatch":
        """The same on a device; a copy from pinned memory does not wait."""
        return ViewBatch(*(part.to(device, non_blocking=True) for part in self))


def stack_images(samples: list[ViewBatch]) -> ViewBatch:
    """Views of single images as one batch: B becomes the second axis."""
    return ViewBatch(*(torch.stack(parts, dim=1) for parts in zip(*samples, strict=True)))


@dataclass(frozen=True)
class ViewKind:
    """How views of one kind are drawn: the paper's augmentation, with DINO's probabilities."""

    size: int
    scale: tuple[float, float]  # share of the image's area
    blur: float  # probability
    solarize: float = 0.0  # probability


class ViewDraw(NamedTuple):
    """Everything random about one view."""

    box: tuple[int, int, int, int]  # top, left, height, width, in pixels
    flip: bool
    jitter: dict[str, Any] | None  # torchvision's order and factors
    grey: bool
    blur_radius: float | None
    solarize: bool


class MultiCrop:
    """An image to its global and local views: the reference path, on PIL images with torchvision.

    What is drawn is kept apart from how it is rendered, so that a view can say where it comes from and another
    renderer can be held against this one. All randomness comes from the seed of the call.
    """

    jitter = v2.ColorJitter(brightness=0.4, contrast=0.4, saturation=0.2, hue=0.1)
    jitter_probability, grey_probability, flip_probability = 0.8, 0.2, 0.5
    blur_radii = (0.1, 2.0)

    def __init__(
        self,
        *,
        global_size: int,
        local_size: int,
        num_local_views: int,
        global_scale: tuple[float, float],
        local_scale: tuple[float, float],
    ):
        self.kinds = [
            ViewKind(global_size, global_scale, blur=1.0),
            ViewKind(global_size, global_scale, blur=0.1, solarize=0.2),
            *[ViewKind(local_size, local_scale, blur=0.5)] * num_local_views,
        ]
        self.local_size = local_size

    def __call__(self, image: Image.Image, seed: int) -> ViewBatch:
        """The views of one image; equal seeds give equal views."""
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            draws = [self.draw(image, kind) for kind in self.kinds]
        views = [self.render(image, draw, kind.size) for draw, kind in zip(draws, self.kinds, strict=True)]
        boxes = torch.tensor([_relative_box(draw.box, image.size) for draw in draws])  # (V, 4)
        flips = torch.tensor([draw.flip for draw in draws])  # (V,)
        no_views = torch.empty(0, 3, self.local_size, self.local_size)
        return ViewBatch(
            torch.stack(views[:NUM_GLOBAL_VIEWS]),
            torch.stack(views[NUM_GLOBAL_VIEWS:]) if len(views) > NUM_GLOBAL_VIEWS else no_views,
            boxes[:NUM_GLOBAL_VIEWS],
            boxes[NUM_GLOBAL_VIEWS:],
            flips[:NUM_GLOBAL_VIEWS],
            flips[NUM_GLOBAL_VIEWS:],
        )

    def draw(self, image: Image.Image, kind: ViewKind) -> ViewDraw:
        """Draw one view from torch's generator, with torchvision's own distributions."""
        crop = v2.RandomResizedCrop(kind.size, scale=kind.scale).make_params([image])
        return ViewDraw(
            box=(crop["top"], crop["left"], crop["height"], crop["width"]),
            flip=_happens(self.flip_probability),
            jitter=self.jitter.make_params([image]) if _happens(self.jitter_probability) else None,
            grey=_happens(self.grey_probability),
            blur_radius=torch.empty(()).uniform_(*self.blur_radii).item() if _happens(kind.blur) else None,
            solarize=_happens(kind.solarize),
        )

    def render(self, image: Image.Image, draw: ViewDraw, size: int) -> Tensor:
        """One drawn view as a normalised tensor (3, size, size)."""
        view = F.resized_crop(image, *draw.box, size=[size, size], interpolation=InterpolationMode.BICUBIC)
        if draw.flip:
            view = F.horizontal_flip(view)
        if draw.jitter is not None:
            view = self.jitter.transform(view, draw.jitter)
        if draw.grey:
            view = F.rgb_to_grayscale(view, num_output_channels=3)
        if draw.blur_radius is not None:
            view = view.filter(ImageFilter.GaussianBlur(draw.blur_radius))
        if draw.solarize:
            view = F.solarize(view, threshold=128)
        return normalised(view)


def normalised(image: Image.Image) -> Tensor:
    """An RGB image as a float tensor (3, H, W) with ImageNet's mean and deviation."""
    tensor: Tensor = F.to_dtype(F.pil_to_tensor(image), torch.float32, scale=True)
    return F.normalize(tensor, list(IMAGENET_MEAN), list(IMAGENET_STD), inplace=True)


def centre_view(image: Image.Image, size: int) -> Tensor:
    """The evaluation view: shorter side to size x 256/224, centre crop (the paper's 256 and 224)."""
    shorter = round(size * 256 / 224)
    image = F.resize(image, [shorter], interpolation=InterpolationMode.BICUBIC)
    return normalised(F.center_crop(image, [size, size]))


def _happens(probability: float) -> bool:
    return bool(torch.rand(()) < probability)


def _relative_box(box: tuple[int, int, int, int], image_size: tuple[int, int]) -> tuple[float, float, float, float]:
    top, left, height, width = box
    image_width, image_height = image_size
    return (left / image_width, top / image_height, (left + width) / image_width, (top + height) / image_height)
