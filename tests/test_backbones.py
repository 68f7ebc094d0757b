import pytest
import torch
import torch.nn.functional as F

from scfs.backbones import Backbone, default_layers
from scfs.errors import UserError


@pytest.mark.parametrize(
    ("name", "layers", "channels", "strides"),
    [
        ("resnet18", ["layer2", "layer3", "layer4"], [128, 256, 512], [8, 16, 32]),
        ("resnet50", ["layer2", "layer3", "layer4"], [512, 1024, 2048], [8, 16, 32]),
        ("resnet10_half", ["layer2", "layer3", "layer4"], [64, 128, 256], [8, 16, 32]),
        ("vit_small_patch16_224", ["blocks.5", "blocks.8", "blocks.11"], [384, 384, 384], [16, 16, 16]),
    ],
)
def test_maps_and_pooled_feature(name, layers, channels, strides):
    backbone = Backbone(name).eval()
    assert (backbone.layers, backbone.channels) == (layers, channels)
    for size in (64, 96):  # global and local views pass the same network
        with torch.no_grad():
            pooled, maps = backbone(torch.randn(2, 3, size, size))
        assert pooled.shape == (2, backbone.num_features)
        assert [tuple(m.shape) for m in maps] == [
            (2, c, size // s, size // s) for c, s in zip(channels, strides, strict=True)
        ]


def test_resnet_pools_its_last_map():
    backbone = Backbone("resnet10_half").eval()
    pooled, maps = backbone(torch.randn(2, 3, 64, 64))
    torch.testing.assert_close(pooled, maps[-1].mean(dim=(-2, -1)))


@torch.no_grad()
def test_vit_maps_are_its_patch_tokens():
    """Plain forward hooks see the same: the last map after the final norm, the others before any."""
    backbone = Backbone("vit_small_patch16_224").eval()
    seen = {}
    for place in (5, 8):
        backbone.net.blocks[place].register_forward_hook(lambda _m, _i, out, place=place: seen.update({place: out}))
    backbone.net.norm.register_forward_hook(lambda _m, _i, out: seen.update(norm=out))
    pooled, maps = backbone(torch.randn(2, 3, 48, 64))
    torch.testing.assert_close(pooled, seen["norm"][:, 0])  # class token
    for found, tokens in zip(maps, (seen[5], seen[8], seen["norm"]), strict=True):
        assert found.shape == (2, 384, 3, 4)
        for row in range(3):
            for column in range(4):
                torch.testing.assert_close(found[:, :, row, column], tokens[:, 1 + row * 4 + column])


def test_any_subset_of_layers_gives_the_same_maps():
    torch.manual_seed(0)
    every = Backbone("resnet10_half", ["layer1", "layer2", "layer3", "layer4"]).eval()
    images = torch.randn(1, 3, 64, 64)
    pooled, maps = every(images)
    for layers in (["layer2"], ["layer1", "layer3"], []):
        some = Backbone("resnet10_half", layers).eval()
        some.load_state_dict(every.state_dict())
        some_pooled, some_maps = some(images)
        torch.testing.assert_close(some_pooled, pooled)
        for layer, found in zip(layers, some_maps, strict=True):
            torch.testing.assert_close(found, maps[every.layers.index(layer)])


def test_no_residual_block_starts_as_identity():
    for block in Backbone("resnet18").net.layer1:
        assert torch.all(block.bn2.weight == 1)


def test_drop_path_acts_in_training_only():
    backbone = Backbone("vit_small_patch16_224", drop_path=0.5)
    images = torch.randn(4, 3, 32, 32)
    assert not torch.equal(backbone.train()(images)[0], backbone(images)[0])
    assert torch.equal(backbone.eval()(images)[0], backbone(images)[0])


def test_default_layers_of_other_depths():
    assert default_layers([f"blocks.{i}" for i in range(24)]) == ["blocks.11", "blocks.17", "blocks.23"]
    assert default_layers(["stages.0", "stages.1", "stages.2", "stages.3"]) == ["stages.1", "stages.2", "stages.3"]


def test_a_model_that_takes_no_drop_path_is_refused():
    with pytest.raises(UserError, match="vgg11"):
        Backbone("vgg11", drop_path=0.1)


def test_transposed_images_give_transposed_maps():
    """Height and width are not mixed up."""
    backbone = Backbone("resnet10_half").eval()
    with torch.no_grad():
        wide = backbone(F.pad(torch.ones(1, 3, 64, 32), (0, 64)))[1][0]
    assert wide.shape[-2:] == (8, 12)
