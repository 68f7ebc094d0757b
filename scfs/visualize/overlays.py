"""Attention over images with a scale of cosines that several pictures share; nothing is computed here."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from matplotlib import colormaps
from numpy.typing import NDArray
from PIL import Image

COLOURS = colormaps["inferno"]
OPACITY = 0.72
OUTSIDE = 1  # per cent of positions beyond each end of the scale
NUM_STOPS = 9


class Scale(NamedTuple):
    """The cosines at the ends of a colour scale."""

    low: float
    high: float


def shared_scale(maps: Iterable[NDArray[np.float32]]) -> Scale:
    """A scale for all of some maps, whatever their shapes."""
    values = np.concatenate([each.ravel() for each in maps])
    low, high = (float(each) for each in np.percentile(values, (OUTSIDE, 100 - OUTSIDE)))
    return Scale(low, max(high, low + 1e-3))


def overlay(image: Image.Image, attention: NDArray[np.float32], scale: Scale) -> Image.Image:
    """Attention (H, W) in the colours of a scale over the image in grey."""
    levels = np.clip((attention - scale.low) / (scale.high - scale.low), 0, 1).astype(np.float32)
    smooth = np.asarray(Image.fromarray(levels).resize(image.size, Image.Resampling.BILINEAR))
    colours = COLOURS(np.clip(smooth, 0, 1))[..., :3]
    grey = np.asarray(image.convert("L"), np.float32)[..., None] / 255
    return Image.fromarray((255 * (OPACITY * colours + (1 - OPACITY) * grey)).round().astype(np.uint8))


def gradient() -> str:
    """The colours of the scale as CSS, over a mid grey as they are over an image."""
    stops = OPACITY * COLOURS(np.linspace(0, 1, NUM_STOPS))[:, :3] + (1 - OPACITY) * 0.5
    listed = (f"rgb({r} {g} {b})" for r, g, b in (255 * stops).round().astype(int).tolist())
    return f"linear-gradient(to right, {', '.join(listed)})"
