"""The colour augmentations of drawn views as batched tensor operations, for any device.

The same operations as in `render`, for a machine whose loader processes cannot keep up with its GPU: the loader then
only crops and resizes, and passes each view's colour parameters on as a row of numbers.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from scfs.data.render import BLUR_RADII, GREY, SOLARIZE_FROM, ViewDraw

# Every function below takes levels (n, 3, H, W) from 0 to 255 as floats, and a factor (n, 1, 1, 1) per image.


def as_row(draw: ViewDraw) -> list[float]:
    """A view's colour parameters: the factor of each operation, its position (-1: not applied), then the rest."""
    factors, order = dict(draw.jitter), [name for name, _ in draw.jitter]
    return [
        *(factors.get(name, 1.0) for name in ADJUST),
        *(float(order.index(name)) if name in order else -1.0 for name in ADJUST),
        float(draw.grey),
        draw.blur_radius or 0.0,
        float(draw.solarize),
    ]


def without_colours(draw: ViewDraw) -> ViewDraw:
    """The same view, only cropped and flipped."""
    return draw._replace(jitter=(), grey=False, blur_radius=None, solarize=False)


@torch.no_grad()
def coloured(views: Tensor, rows: Tensor) -> Tensor:
    """Apply colour parameters (V, B, columns), which may stay on the CPU, to uint8 views (V, B, 3, H, W)."""
    levels, columns = views.flatten(0, 1).float(), rows.flatten(0, 1).T
    count = len(ADJUST)
    for position in range(count):
        for i, adjust in enumerate(ADJUST.values()):
            _change(levels, columns[count + i] == position, columns[i], adjust)
    grey, radius, solarize = columns[2 * count :]
    _change(levels, grey == 1, grey, lambda x, _: _grey(x).expand_as(x))
    _change(levels, radius > 0, radius, blur)
    _change(levels, solarize == 1, solarize, lambda x, _: torch.where(x.round() >= SOLARIZE_FROM, 255 - x, x))
    return levels.round_().clamp_(0, 255).to(torch.uint8).unflatten(0, views.shape[:2])


def adjust_brightness(levels: Tensor, factor: Tensor) -> Tensor:
    """Scale all levels."""
    return (levels * factor).clamp_(0, 255)


def adjust_contrast(levels: Tensor, factor: Tensor) -> Tensor:
    """Move all levels away from the mean grey, or towards it."""
    return levels.lerp(_grey(levels).mean(dim=(1, 2, 3), keepdim=True), 1 - factor).clamp_(0, 255)


def adjust_saturation(levels: Tensor, factor: Tensor) -> Tensor:
    """Move each pixel away from its grey, or towards it."""
    return levels.lerp(_grey(levels), 1 - factor).clamp_(0, 255)


def adjust_hue(levels: Tensor, factor: Tensor) -> Tensor:
    """Rotate the hues; a factor of 1 is a full turn."""
    red, green, blue = levels.unbind(1)
    top, chroma = levels.amax(dim=1), levels.amax(dim=1) - levels.amin(dim=1)
    scale = chroma.clamp(min=1e-6)
    sixths = torch.where(
        top == red,
        (green - blue) / scale,
        torch.where(top == green, 2 + (blue - red) / scale, 4 + (red - green) / scale),
    )
    rotated = sixths.unsqueeze(1) + 6 * factor  # (n, 1, H, W)
    primaries = torch.arange(5, 0, -2, device=levels.device).view(3, 1, 1)
    distance = (primaries + rotated) % 6  # from each primary
    return top.unsqueeze(1) - chroma.unsqueeze(1) * torch.minimum(distance, 4 - distance).clamp_(0, 1)


def blur(levels: Tensor, radius: Tensor) -> Tensor:
    """Gaussian blur; the radius is the standard deviation."""
    reaches = (2.5 * radius.flatten()).round()
    reach = round(2.5 * BLUR_RADII[1])  # the largest
    taps = torch.arange(-reach, reach + 1, device=levels.device)
    kernels = torch.exp(-0.5 * (taps / radius.flatten()[:, None]) ** 2) * (taps.abs() <= reaches[:, None])
    kernels = (kernels / kernels.sum(dim=1, keepdim=True)).repeat_interleave(3, dim=0)  # (n * 3, taps)
    channels = F.pad(levels, [reach] * 4, mode="replicate").flatten(0, 1).unsqueeze(0)  # (1, n * 3, H, W)
    for shape in ((-1, 1, 1, len(taps)), (-1, 1, len(taps), 1)):
        channels = F.conv2d(channels, kernels.view(shape), groups=len(kernels))
    return channels.view_as(levels)


def _grey(levels: Tensor) -> Tensor:
    red, green, blue = (float(weight) * levels[:, i : i + 1] for i, weight in enumerate(GREY))
    return red + green + blue


def _change(levels: Tensor, chosen: Tensor, factors: Tensor, change: Callable[[Tensor, Tensor], Tensor]) -> None:
    """Change the chosen images in place. They are chosen on the rows' device, so that nothing waits for a GPU."""
    indices = chosen.nonzero().flatten()
    if len(indices):
        on_device = indices.to(levels.device, non_blocking=True)
        factor = factors[indices].view(-1, 1, 1, 1).to(levels.device, non_blocking=True)
        levels[on_device] = change(levels[on_device], factor)


ADJUST = {
    "brightness": adjust_brightness,
    "contrast": adjust_contrast,
    "saturation": adjust_saturation,
    "hue": adjust_hue,
}
