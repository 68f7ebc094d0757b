"""Render drawn views to pixels in two ways, reference and fast, which agree within the tolerances of the tests."""

from typing import NamedTuple

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageFilter
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional as F

Pixels = NDArray[np.uint8]  # (H, W, 3), RGB

SOLARIZE_FROM = 128
BLUR_RADII = (0.1, 2.0)
GREY = np.array([0.299, 0.587, 0.114], np.float32)  # ITU-R 601, as in Pillow and OpenCV
IDENTITY = np.eye(3, dtype=np.float32)
LEVELS = np.arange(256)


class ViewDraw(NamedTuple):
    """Everything random about one view."""

    box: tuple[int, int, int, int]  # top, left, height, width, in pixels
    flip: bool
    jitter: tuple[tuple[str, float], ...]  # operations and their factors, in order; empty: no jitter
    grey: bool
    blur_radius: float | None
    solarize: bool


def render_reference(image: Image.Image, draw: ViewDraw, size: int) -> Pixels:
    """One drawn view (size, size, 3), with torchvision on PIL images and Pillow's blur, as composed in DINO."""
    view = F.resized_crop(image, *draw.box, size=[size, size], interpolation=InterpolationMode.BICUBIC)
    if draw.flip:
        view = F.horizontal_flip(view)
    for name, factor in draw.jitter:
        view = getattr(F, f"adjust_{name}")(view, factor)
    if draw.grey:
        view = F.rgb_to_grayscale(view, num_output_channels=3)
    if draw.blur_radius is not None:
        view = view.filter(ImageFilter.GaussianBlur(draw.blur_radius))
    if draw.solarize:
        view = F.solarize(view, threshold=SOLARIZE_FROM)
    return np.array(view)


def render_fast(image: Pixels, draw: ViewDraw, size: int) -> Pixels:
    """The same view from an image (H, W, 3), with torch's vectorised resize, and OpenCV for the rest.

    Written by hand because ten views of a photo cost more than a small network's step on the reference path.
    """
    view = resize(image, draw.box, size)
    if draw.flip:
        view = cv2.flip(view, 1)
    for name, factor in draw.jitter:
        view = ADJUST[name](view, factor)
    if draw.grey:
        view = cv2.cvtColor(cv2.cvtColor(view, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB)
    if draw.blur_radius is not None:
        view = blur(view, draw.blur_radius)
    if draw.solarize:
        view = cv2.LUT(view, SOLARIZED)
    return view


def resize(image: Pixels, box: tuple[int, int, int, int], size: int) -> Pixels:
    """A box of an image at (size, size), bicubic with antialiasing, as in Pillow."""
    top, left, height, width = box
    crop = torch.from_numpy(image[top : top + height, left : left + width].copy())  # contiguous, for torch's fast path
    channels_last = crop.unsqueeze(0).permute(0, 3, 1, 2)  # in this order, or the strides are not recognised
    resized = torch.nn.functional.interpolate(channels_last, (size, size), mode="bicubic", antialias=True)
    return resized[0].permute(1, 2, 0).numpy()


def adjust_brightness(view: Pixels, factor: float) -> Pixels:
    """Scale all levels."""
    return _scaled(view, factor, 0)


def adjust_contrast(view: Pixels, factor: float) -> Pixels:
    """Move all levels away from the mean grey, or towards it."""
    mean = int(np.dot(cv2.mean(view)[:3], GREY) + 0.5)
    return _scaled(view, factor, mean * (1 - factor))


def adjust_saturation(view: Pixels, factor: float) -> Pixels:
    """Move each pixel away from its grey, or towards it."""
    return cv2.transform(view, factor * IDENTITY + (1 - factor) * GREY)


def adjust_hue(view: Pixels, factor: float) -> Pixels:
    """Rotate the hues; a factor of 1 is a full turn."""
    hsv = cv2.cvtColor(view, cv2.COLOR_RGB2HSV_FULL)
    shift = np.zeros(hsv.shape[1:], np.uint8)  # for one row
    shift[:, 0] = int(factor * 255) % 256
    hsv += shift  # wraps around, as hues do
    return cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB_FULL)


def blur(view: Pixels, radius: float) -> Pixels:
    """Gaussian blur; the radius is the standard deviation."""
    kernel = cv2.getGaussianKernel(2 * round(2.5 * radius) + 1, radius, cv2.CV_32F)
    return cv2.sepFilter2D(view, -1, kernel, kernel, borderType=cv2.BORDER_REPLICATE)  # a third of GaussianBlur's time


def _scaled(view: Pixels, factor: float, offset: float) -> Pixels:
    """Levels times a factor plus an offset, truncated as in Pillow, where OpenCV would round."""
    return cv2.addWeighted(view, factor, view, 0, offset - 0.499)


ADJUST = {
    "brightness": adjust_brightness,
    "contrast": adjust_contrast,
    "saturation": adjust_saturation,
    "hue": adjust_hue,
}
SOLARIZED = np.where(LEVELS >= SOLARIZE_FROM, 255 - LEVELS, LEVELS).astype(np.uint8)
