import math
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

COLUMNS_MB = 16  # of patches unfolded at a time, which should fit in a cache
MIN_CHANNELS = 16  # with fewer, patches are too narrow for a matrix product
MAX_HALF_POSITIONS = 4  # of an output map in half precision; on larger ones oneDNN's kernels are faster


class _Convolution(torch.autograd.Function):
    """A convolution in the precision of x, whose weight gradient is computed by matrix products."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, stride: tuple[int, int], padding: tuple[int, int]) -> Tensor:
        ctx.stride, ctx.padding, ctx.weight_dtype = stride, padding, weight.dtype
        weight = weight.to(x.dtype)
        ctx.save_for_backward(x, weight)
        return F.conv2d(x, weight, None, stride, padding)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        [gradient], (x, weight) = gradients, ctx.saved_tensors
        needs_x_grad, needs_weight_grad = ctx.needs_input_grad[:2]
        x_grad = weight_grad = None
        if needs_x_grad:
            options = (ctx.stride, ctx.padding, (1, 1), False, (0, 0), 1)
            x_grad = torch.ops.aten.convolution_backward(gradient, x, weight, None, *options, [True, False, False])[0]
        if needs_weight_grad:
            weight_grad = weight_gradient(gradient, x, weight.shape, ctx.stride, ctx.padding).to(ctx.weight_dtype)
        return x_grad, weight_grad, None, None


def weight_gradient(
    gradient: Tensor, x: Tensor, shape: torch.Size, stride: tuple[int, int], padding: tuple[int, int]
) -> Tensor:
    """Gradient of a convolution's weight, of a shape (out, in, height, width), from the gradient of its output; float32
    if the output is in half precision.

    gradient: (B, out, H, W). x: (B, in, h, w). Patches of x are unfolded into rows (im2col), a few images at a time, so
    that the arithmetic is a single matrix product for each.
    """
    outs, ins, *kernel = shape
    gradient, x = gradient.movedim(1, -1), x.movedim(1, -1)  # (B, H, W, C)
    row_bytes = gradient[0, :, :, 0].numel() * ins * kernel[0] * kernel[1] * x.element_size()
    width = kernel[0] * kernel[1] * ins
    total = torch.zeros(outs, width, device=x.device, dtype=torch.promote_types(x.dtype, torch.float32))
    for some_gradient, some_x in zip(
        *(t.split(max(1, COLUMNS_MB * 2**20 // row_bytes)) for t in (gradient, x)), strict=True
    ):
        columns = _patches(some_x, some_gradient.shape[1:3], kernel, stride, padding).reshape(-1, width)
        rows = some_gradient.reshape(-1, outs).T
        if x.dtype == total.dtype:
            total.addmm_(rows, columns)
        else:
            total += rows @ columns
    return total.view(outs, *kernel, ins).movedim(-1, 1)


def _patches(
    x: Tensor, positions: torch.Size, kernel: list[int], stride: tuple[int, int], padding: tuple[int, int]
) -> Tensor:
    """(B, h, w, C) to what the kernel sees at each position: (B, H, W, height, width, C), a view of the padded x."""
    if any(padding):
        x = F.pad(x, (0, 0, padding[1], padding[1], padding[0], padding[0]))
    image, row, column, channel = x.stride()
    return x.as_strided(
        (len(x), *positions, *kernel, x.shape[-1]),
        (image, row * stride[0], column * stride[1], row, column, channel),
    )


class GemmConv2d(nn.Conv2d):
    """`nn.Conv2d` with the same outputs, whose weight gradient is computed by matrix products.

    Written by hand for speed: on a CPU, oneDNN's kernel for it runs at 50-80 % of the rate of a matrix product.
    """

    def forward(self, x: Tensor) -> Tensor:
        """As `nn.Conv2d`."""
        if torch.is_autocast_enabled(x.device.type):
            return self._forward_in_half_precision(x)
        out: Tensor = _Convolution.apply(x, self.weight, self.stride, self.padding)
        return out

    def _forward_in_half_precision(self, x: Tensor) -> Tensor:
        """As `nn.Conv2d`, with matrix products for gradients of small maps only.

        On a map of 1 x 1 by the kernel's center alone, the only tap that is not on padding: oneDNN's bfloat16 gradients
        of a strided 3 x 3 convolution read uninitialised memory on such maps (torch 2.15).
        """
        (height, width), padding = self.kernel_size, cast(tuple[int, int], tuple(self.padding))
        if x.shape[-2:] == (1, 1) and height % 2 and width % 2 and padding == (height // 2, width // 2):
            return F.conv2d(x, self.weight[:, :, height // 2, width // 2, None, None])
        axes = zip(x.shape[-2:], self.kernel_size, self.stride, padding, strict=True)
        sides = [(side + 2 * pad - taps) // step + 1 for side, taps, step, pad in axes]
        if math.prod(sides) > MAX_HALF_POSITIONS:
            return super().forward(x)
        half = torch.get_autocast_dtype(x.device.type)
        out: Tensor = _Convolution.apply(x.to(half), self.weight, self.stride, self.padding)
        return out


def use_gemm_weight_gradients(network: nn.Module) -> None:
    """Compute the weight gradients of a network by matrix products: faster on a CPU, and equal up to rounding."""
    for layer in network.modules():
        if type(layer) is nn.Conv2d and _suits(layer):
            layer.__class__ = GemmConv2d  # weights, names and hooks stay


def _suits(layer: nn.Conv2d) -> bool:
    plain = layer.bias is None and layer.groups == 1 and layer.padding_mode == "zeros" and layer.dilation == (1, 1)
    return plain and not isinstance(layer.padding, str) and layer.in_channels >= MIN_CHANNELS
