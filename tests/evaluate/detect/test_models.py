from dataclasses import replace

import pytest
import torch
from torch import nn

from scfs.backbones import Backbone
from scfs.errors import UserError
from scfs.evaluate.detect.bodies import PyramidBody, TransformerBody, pyramid_body, split_c4
from scfs.evaluate.detect.models import DetectorSpec, backbone_state, build_detector

SPEC = DetectorSpec("mask-rcnn-fpn", 3, channels=16, sizes=(64,), max_size=128, regions=8)


@pytest.fixture
def images():
    return torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))


def test_a_pyramid_starts_from_the_backbones_maps(images):
    backbone = Backbone("resnet10_half", ["layer1", "layer2", "layer3", "layer4"]).eval()
    body = PyramidBody(backbone, 16).eval()
    seen = []
    body.pyramid.register_forward_pre_hook(lambda _, args: seen.extend(args[0].values()))
    body(images)
    for ours, expected in zip(seen, backbone(images)[1], strict=True):
        assert torch.equal(ours, expected)


@pytest.mark.parametrize("name", ["resnet10_half", "resnet18", "resnet50"])
def test_c4_is_the_backbone_in_two_parts(name, images):
    backbone = Backbone(name, ["layer3", "layer4"]).eval()
    body, head = split_c4(backbone)
    body.eval()
    head.eval()
    layer3, layer4 = backbone(images)[1]
    assert torch.equal(body(images), layer3)
    head.norm = nn.Identity()
    torch.testing.assert_close(head(layer3), layer4.mean(dim=(2, 3)))


@pytest.mark.parametrize("detector", ["faster-rcnn-c4", "mask-rcnn-fpn"])
def test_the_backbones_weights_come_out_as_they_went_in(detector):
    backbone = Backbone("resnet10_half")
    state = backbone_state(build_detector(backbone, replace(SPEC, name=detector)))
    expected = backbone.net.state_dict()
    assert state.keys() == expected.keys()
    assert backbone.net.conv1.weight.abs().sum() > 0
    assert backbone.net.layer4[0].conv1.weight.abs().sum() > 0


@pytest.mark.parametrize("name", ["resnet18", "convnext_atto", "vit_tiny_patch16_224"])
def test_maps_of_any_backbone_have_the_strides_that_regions_are_pooled_from(name, images):
    maps = pyramid_body(Backbone(name), 16).eval()(images)
    assert list(maps) == ["0", "1", "2", "3", "pool"]
    assert [tuple(each.shape[1:]) for each in maps.values()] == [(16, side, side) for side in (16, 8, 4, 2, 1)]


def test_a_transformers_pyramid_starts_from_its_normalized_last_map(images):
    backbone = Backbone("vit_tiny_patch16_224").eval()
    body = TransformerBody(backbone, 16).eval()
    seen = []
    body.resize[2].register_forward_pre_hook(lambda _, args: seen.extend(args))
    body(images)
    assert torch.equal(seen[0], backbone(images)[1][-1])


@pytest.mark.parametrize(
    ("detector", "name", "message"),
    [
        ("faster-rcnn-c4", "convnext_atto", "A C4 detector needs a ResNet, not 'convnext_atto'"),
        ("mask-rcnn-fpn", "vit_small_patch8_224", "patches of 16 pixels; those of 'vit_small_patch8_224' are 8"),
    ],
)
def test_backbones_that_do_not_fit_are_refused(detector, name, message):
    with pytest.raises(UserError, match=message):
        build_detector(Backbone(name), replace(SPEC, name=detector))


def test_every_new_layer_of_the_pyramid_and_its_heads_has_a_batch_norm():
    detector = build_detector(Backbone("resnet10_half"), SPEC)
    for module in (detector.backbone.pyramid, detector.roi_heads.box_head, detector.roi_heads.mask_head):
        convolutions = [each for each in module.modules() if isinstance(each, nn.Conv2d)]
        norms = [each for each in module.modules() if isinstance(each, nn.BatchNorm2d)]
        assert len(convolutions) == len(norms) > 3


def losses_of(detector):
    mask = torch.zeros(1, 64, 64, dtype=torch.uint8)
    mask[:, 10:40, 10:40] = 1
    target = {"boxes": torch.tensor([[10.0, 10, 40, 40]]), "labels": torch.tensor([1]), "masks": mask}
    return detector.train()([torch.rand(3, 64, 64)] * 2, [target] * 2)


@pytest.mark.parametrize(
    ("name", "frozen"),
    [
        ("resnet10_half", []),
        ("vit_tiny_patch16_224", []),
        ("convnext_atto", ["head.norm.weight", "head.norm.bias"]),
        ("swin_tiny_patch4_window7_224", ["norm.weight", "norm.bias"]),
        ("efficientnet_b0", ["conv_head.weight", "bn2.weight", "bn2.bias"]),
    ],
)
def test_all_that_is_trained_gets_a_gradient(name, frozen):
    detector = build_detector(Backbone(name), SPEC)
    torch.stack(list(losses_of(detector).values())).sum().backward()
    assert all((parameter.grad is not None) == parameter.requires_grad for parameter in detector.parameters())
    assert [name for name, each in detector.backbone.net.named_parameters() if not each.requires_grad] == frozen
    assert backbone_state(detector).keys() >= {*frozen}


def test_losses_are_float32_under_autocast():
    detector = build_detector(Backbone("resnet10_half"), SPEC)
    with torch.autocast("cpu", torch.bfloat16):
        losses = losses_of(detector)
    assert {loss.dtype for loss in losses.values()} == {torch.float32}
    assert len(losses) == 5
