from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

COLUMNS_MB = 16  # of patches laid out at once; they should stay in a cache
MIN_CHANNELS = 16  # below, patches are too narrow for a matrix product


class _Convolution(torch.autograd.Function):
    """A convolution whose weights learn through matrix products."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, stride: tuple[int, int], padding: tuple[int, int]) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.stride, ctx.padding = stride, padding
        return F.conv2d(x, weight, None, stride, padding)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        [gradient], (x, weight) = gradients, ctx.saved_tensors
        learns_x, learns_weight = ctx.needs_input_grad[:2]
        for_x = for_weight = None
        if learns_x:
            place = (ctx.stride, ctx.padding, (1, 1), False, (0, 0), 1)
            for_x = torch.ops.aten.convolution_backward(gradient, x, weight, None, *place, [True, False, False])[0]
        if learns_weight:
            for_weight = weight_gradient(gradient, x, weight.shape, ctx.stride, ctx.padding)
        return for_x, for_weight, None, None


def weight_gradient(
    gradient: Tensor, x: Tensor, shape: torch.Size, stride: tuple[int, int], padding: tuple[int, int]
) -> Tensor:
    """Gradient of a convolution's weight, of a shape (out, in, height, width), from those of its output.

    gradient: (B, out, H, W). x: (B, in, h, w). Patches of x are laid out as rows, a few images at a time, so that all
    the arithmetic is one matrix product each.
    """
    outs, ins, *kernel = shape
    gradient, x = gradient.movedim(1, -1), x.movedim(1, -1)  # (B, H, W, C)
    row_bytes = gradient[0, :, :, 0].numel() * ins * kernel[0] * kernel[1] * x.element_size()
    total = x.new_zeros(outs, kernel[0] * kernel[1] * ins)
    for some, given in zip(*(t.split(max(1, COLUMNS_MB * 2**20 // row_bytes)) for t in (gradient, x)), strict=True):
        columns = _patches(given, some.shape[1:3], kernel, stride, padding).reshape(-1, total.shape[1])
        total.addmm_(some.reshape(-1, outs).T, columns)
    return total.view(outs, *kernel, ins).movedim(-1, 1)


def _patches(
    x: Tensor, places: torch.Size, kernel: list[int], stride: tuple[int, int], padding: tuple[int, int]
) -> Tensor:
    """(B, h, w, C) to what the kernel sees at each place: (B, H, W, height, width, C), a view of the padded x."""
    if any(padding):
        x = F.pad(x, (0, 0, padding[1], padding[1], padding[0], padding[0]))
    image, row, column, channel = x.stride()
    return x.as_strided(
        (len(x), *places, *kernel, x.shape[-1]),
        (image, row * stride[0], column * stride[1], row, column, channel),
    )


class GemmConv2d(nn.Conv2d):
    """`nn.Conv2d` with the same outputs, whose weight gradient is computed by matrix products.

    By hand for speed: on a CPU, oneDNN's kernel for it runs at 50-80 % of the rate of a matrix product.
    """

    def forward(self, x: Tensor) -> Tensor:
        """As `nn.Conv2d`."""
        if torch.is_autocast_enabled(x.device.type):
            return super().forward(x)
        out: Tensor = _Convolution.apply(x, self.weight, self.stride, self.padding)
        return out


def use_gemm_weight_gradients(network: nn.Module) -> None:
    """Let the convolutions of a network learn through matrix products: faster on a CPU, and to rounding the same."""
    for layer in network.modules():
        if type(layer) is nn.Conv2d and _suits(layer):
            layer.__class__ = GemmConv2d  # weights, names and hooks stay


def _suits(layer: nn.Conv2d) -> bool:
    plain = layer.bias is None and layer.groups == 1 and layer.padding_mode == "zeros" and layer.dilation == (1, 1)
    return plain and not isinstance(layer.padding, str) and layer.in_channels >= MIN_CHANNELS
