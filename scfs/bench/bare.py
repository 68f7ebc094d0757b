from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

SIDE = 2048  # of the square matrices


class Product(NamedTuple):
    """One convolution or linear layer, as a network called it."""

    layer: nn.Conv2d | nn.Linear
    inputs: torch.Size
    outputs: torch.Size
    weight_gradient: bool
    input_gradient: bool


class BareProducts:
    """The convolutions and linear layers of some networks and nothing else, forward and backward, at the same shapes.

    As torch computes them: what would be left of a step if norms, activations, heads, losses and the optimizer cost
    nothing, and if weight gradients were not made faster (`scfs.training.convolution`).
    """

    def __init__(self, run: Callable[[], object], *networks: nn.Module):
        self.products: list[Product] = []
        layers = [layer for network in networks for layer in network.modules()]
        handles = [
            layer.register_forward_hook(self._record) for layer in layers if isinstance(layer, nn.Conv2d | nn.Linear)
        ]
        run()
        for handle in handles:
            handle.remove()
        self.values = {shape: _random(shape) for product in self.products for shape in product[1:3]}

    def _record(self, layer: nn.Module, inputs: tuple[Tensor], output: Tensor) -> None:
        assert isinstance(layer, nn.Conv2d | nn.Linear)
        trained, [given] = output.requires_grad, inputs
        self.products.append(Product(layer, given.shape, output.shape, trained, trained and given.requires_grad))

    @torch.no_grad()
    def __call__(self) -> None:
        """Compute all of them once."""
        for layer, inputs, outputs, weight_gradient, input_gradient in self.products:
            given, gradient = self.values[inputs], self.values[outputs]
            layer(given)
            if weight_gradient and isinstance(layer, nn.Linear):
                gradient.flatten(0, -2).T @ given.flatten(0, -2)
                if input_gradient:
                    gradient @ layer.weight
            elif isinstance(layer, nn.Conv2d) and weight_gradient:
                torch.ops.aten.convolution_backward(
                    *(gradient, given, layer.weight, None),
                    *(layer.stride, layer.padding, layer.dilation, False, [0, 0], layer.groups),
                    [input_gradient, True, False],
                )


def _random(shape: torch.Size) -> Tensor:
    values = torch.randn(shape)
    return values.contiguous(memory_format=torch.channels_last) if len(shape) == 4 else values


class MatrixProduct:
    """A product of two square matrices: close to the peak arithmetic rate of a machine."""

    flops = 2.0 * SIDE**3

    def __init__(self) -> None:
        self.square = torch.randn(SIDE, SIDE)

    def __call__(self) -> None:
        """Compute it once."""
        self.square @ self.square
