import copy

import pytest
import torch
from torch import nn

from scfs.backbones import Backbone
from scfs.training import convolution
from scfs.training.convolution import GemmConv2d, use_gemm_weight_gradients

KINDS = [
    {"kernel_size": 1},
    {"kernel_size": 1, "stride": 2},
    {"kernel_size": 3, "padding": 1},
    {"kernel_size": (3, 5), "stride": (2, 1), "padding": (0, 2)},
    {"kernel_size": 4, "stride": 4},
]


def both(**kind):
    """A plain convolution and its equal with gradients by matrix products, in float64."""
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Conv2d(16, 6, bias=False, **kind)).double().to(memory_format=torch.channels_last)
    products = copy.deepcopy(plain)
    use_gemm_weight_gradients(products)
    assert type(products[0]) is GemmConv2d
    return plain, products


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("columns_mb", [16, 0])  # all images at once, or one by one
@pytest.mark.parametrize("channels_last", [True, False])
def test_outputs_and_gradients_are_the_same(kind, columns_mb, channels_last, monkeypatch):
    monkeypatch.setattr(convolution, "COLUMNS_MB", columns_mb)
    plain, products = both(**kind)
    x = torch.randn(3, 16, 9, 11, dtype=torch.float64)
    x = x.to(memory_format=torch.channels_last) if channels_last else x
    inputs = [x.clone().requires_grad_(), x.clone().requires_grad_()]
    outs = [network(given) for network, given in zip((plain, products), inputs, strict=True)]
    assert torch.equal(*outs)
    upstream = torch.randn_like(outs[0])
    for out in outs:
        out.backward(upstream)
    torch.testing.assert_close(inputs[1].grad, inputs[0].grad)
    torch.testing.assert_close(products[0].weight.grad, plain[0].weight.grad)
    assert products[0].weight.grad.stride() == products[0].weight.stride()


def test_frozen_weights_get_no_gradient():
    _, products = both(kernel_size=3)
    products.requires_grad_(False)
    x = torch.randn(1, 16, 5, 5, dtype=torch.float64, requires_grad=True)
    products(x).sum().backward()
    assert products[0].weight.grad is None
    assert x.grad is not None


@pytest.mark.parametrize("columns_mb", [16, 0])
@pytest.mark.parametrize(("side", "is_small"), [(3, True), (5, False)])
def test_half_precision_on_large_maps_is_left_to_torch(side, is_small, columns_mb, monkeypatch):
    """On maps of up to four positions the gradient is that of float32, to bfloat16's precision of the inputs."""
    monkeypatch.setattr(convolution, "COLUMNS_MB", columns_mb)
    plain, products = both(kernel_size=3, stride=2, padding=1)
    used = []
    original = convolution.weight_gradient
    monkeypatch.setattr(convolution, "weight_gradient", lambda *args: used.append(True) or original(*args))
    x = torch.randn(7, 16, side, side)
    exact = plain.float()(x)
    with torch.autocast("cpu", torch.bfloat16):
        out = products.float()(x)
    assert out.dtype == torch.bfloat16
    upstream = torch.randn_like(exact)
    exact.backward(upstream)
    out.backward(upstream.bfloat16())
    assert bool(used) == is_small
    gradients = [network[0].weight.grad for network in (plain, products)]
    assert gradients[1].dtype == torch.float32
    assert (gradients[1] - gradients[0]).norm() < 0.01 * gradients[0].norm()
    assert gradients[1].stride() == gradients[0].stride()


def test_only_plain_convolutions_are_changed():
    network = nn.Sequential(
        nn.Conv2d(16, 16, 3),
        nn.Conv2d(16, 16, 3, groups=2, bias=False),
        nn.Conv2d(16, 16, 3, dilation=2, bias=False),
        nn.Conv2d(16, 16, 3, padding="same", bias=False),
        nn.Conv2d(16, 16, 3, padding=1, padding_mode="reflect", bias=False),
        nn.Conv2d(3, 16, 3, bias=False),
    )
    use_gemm_weight_gradients(network)
    assert all(type(layer) is nn.Conv2d for layer in network)


def test_a_backbone_keeps_its_weights_and_names():
    backbone = Backbone("resnet18")
    before = {name: value.clone() for name, value in backbone.state_dict().items()}
    use_gemm_weight_gradients(backbone)
    after = backbone.state_dict()
    assert list(before) == list(after)
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert sum(type(layer) is GemmConv2d for layer in backbone.modules()) == 19  # all but the stem


@pytest.mark.parametrize("stride", [1, 2])
def test_bfloat16_gradients_on_maps_of_one_position(stride):
    """With torch's own convolution they depend on what the memory held before."""
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Conv2d(128, 256, 3, stride=stride, padding=1, bias=False))
    products = copy.deepcopy(plain)
    use_gemm_weight_gradients(products)
    x = torch.randn(8, 128, 1, 1)
    expected = plain(x).square().sum()
    expected.backward()
    for _ in range(5):
        poison = [torch.full((size,), float("inf"), dtype=torch.bfloat16) for size in (1_000, 30_000, 300_000)]
        del poison
        products.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = products(x).float().square().sum()
        loss.backward()
        torch.testing.assert_close(loss, expected, rtol=0.02, atol=0)
        error = (products[0].weight.grad - plain[0].weight.grad).norm() / plain[0].weight.grad.norm()
        assert error < 0.02
