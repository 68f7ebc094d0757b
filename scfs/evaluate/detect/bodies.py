"""The part of a detector that makes maps of an image, from a pre-trained backbone."""

import copy
from typing import Any

import torch
import torch.nn.functional as F
from timm.layers.norm import LayerNorm2d
from timm.models.resnet import ResNet
from torch import Tensor, nn
from torchvision.ops.feature_pyramid_network import FeaturePyramidNetwork, LastLevelMaxPool

from scfs.backbones import Backbone
from scfs.errors import UserError
from scfs.preprocessing import USUAL_SIZE

# B images, R regions, C channels, H W map height and width

STRIDES = (4, 8, 16, 32)  # of the maps that a feature pyramid starts from
PADDED_TO = 32  # torchvision pads images to a multiple of this


class PyramidBody(nn.Module):
    """The stages of a network with a feature pyramid (FPN) on top: maps of strides 4 to 64."""

    def __init__(self, backbone: Backbone, channels: int):
        super().__init__()
        layers = {entry["reduction"]: (i, entry["num_chs"]) for i, entry in enumerate(backbone.net.feature_info)}
        if not {*STRIDES} <= {*layers}:
            raise UserError(
                f"A feature pyramid needs maps of strides {', '.join(map(str, STRIDES))}; those of '{backbone.name}' "
                f"are {', '.join(map(str, layers))}: choose another backbone."
            )
        self.net, self.out_channels = copy.deepcopy(backbone.net), channels
        self.indices = [layers[stride][0] for stride in STRIDES]
        widths = [layers[stride][1] for stride in STRIDES]
        self.pyramid = FeaturePyramidNetwork(widths, channels, LastLevelMaxPool(), nn.BatchNorm2d)

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        """images: (B, 3, H, W) -> maps (B, C, H, W), large to small, named as in torchvision."""
        maps = self.net.forward_intermediates(images, indices=self.indices, intermediates_only=True)
        pyramid: dict[str, Tensor] = self.pyramid({str(i): each for i, each in enumerate(maps)})
        return pyramid


class TransformerBody(nn.Module):
    """A plain transformer with ViTDet's simple feature pyramid: every map is made from the last one."""

    def __init__(self, backbone: Backbone, channels: int):
        super().__init__()
        patch = backbone.net.feature_info[-1]["reduction"]
        if patch != 16:
            raise UserError(
                f"The feature pyramid of a transformer starts from patches of 16 pixels; those of '{backbone.name}' "
                f"are {patch}: choose another backbone."
            )
        self.backbone, self.out_channels = Backbone(backbone.name, [backbone.deepest_layer]), channels
        self.backbone.net.load_state_dict(backbone.net.state_dict())
        width = self.backbone.channels[0]
        half = nn.Sequential(nn.ConvTranspose2d(width, width // 2, 2, stride=2), LayerNorm2d(width // 2), nn.GELU())
        self.resize = nn.ModuleList(
            [
                nn.Sequential(*copy.deepcopy(half), nn.ConvTranspose2d(width // 2, width // 4, 2, stride=2)),
                nn.ConvTranspose2d(width, width // 2, 2, stride=2),
                nn.Identity(),
                nn.MaxPool2d(2, stride=2),
            ]
        )
        self.outputs = nn.ModuleList(_projection(width // shrink, channels) for shrink in (4, 2, 1, 1))

    @property
    def net(self) -> nn.Module:
        """The timm model."""
        return self.backbone.net

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        """images: (B, 3, H, W) -> maps (B, C, H, W), large to small, named as in torchvision."""
        [last] = self.backbone(images)[1]
        maps = [output(resize(last)) for resize, output in zip(self.resize, self.outputs, strict=True)]
        return {**{str(i): each for i, each in enumerate(maps)}, "pool": F.max_pool2d(maps[-1], 1, stride=2)}


def _projection(width: int, channels: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(width, channels, 1, bias=False),
        LayerNorm2d(channels),
        nn.Conv2d(channels, channels, 3, padding=1, bias=False),
        LayerNorm2d(channels),
    )


class C4Body(nn.Module):
    """A ResNet up to layer3, whose map (stride 16) is the only one."""

    def __init__(self, net: Any):
        super().__init__()
        self.net = net
        self.net.layer4 = nn.Identity()  # it is in the head
        entries = {entry["module"]: (i, entry["num_chs"]) for i, entry in enumerate(net.feature_info)}
        self.index, self.out_channels = entries["layer3"]

    def forward(self, images: Tensor) -> Tensor:
        """images: (B, 3, H, W) -> map (B, C, H / 16, W / 16)."""
        [found] = self.net.forward_intermediates(images, indices=[self.index], intermediates_only=True, stop_early=True)
        return found


class C4Head(nn.Module):
    """layer4 of a ResNet on the map of each region, a batch norm as in MoCo, and the mean over positions."""

    def __init__(self, layer4: nn.Module, channels: int):
        super().__init__()
        self.layer4, self.norm, self.out_channels = layer4, nn.BatchNorm2d(channels), channels

    def forward(self, regions: Tensor) -> Tensor:
        """regions: (R, C, H, W) -> features (R, C)."""
        features: Tensor = self.norm(self.layer4(regions)).mean(dim=(2, 3))
        return features


def split_c4(backbone: Backbone) -> tuple[C4Body, C4Head]:
    """Copy a ResNet into the body and the box head of a C4 detector."""
    if not isinstance(backbone.net, ResNet):
        raise UserError(f"A C4 detector needs a ResNet, not '{backbone.name}'; use a detector with a feature pyramid.")
    net: Any = copy.deepcopy(backbone.net)
    head = C4Head(net.layer4, net.num_features)
    return C4Body(net), head


def pyramid_body(backbone: Backbone, channels: int) -> PyramidBody | TransformerBody:
    """The stages of a network, or a plain transformer, with a feature pyramid.

    What no map depends on, such as a norm before the classifier, is frozen: DDP waits for the gradients of all else.
    """
    reductions = {entry["reduction"] for entry in backbone.net.feature_info}
    build = TransformerBody if len(reductions) == 1 else PyramidBody
    body = build(backbone, channels)
    with torch.device("meta"):
        twin = build(Backbone(backbone.name, backbone.layers), channels)
        maps = twin(torch.empty(2, 3, USUAL_SIZE, USUAL_SIZE))
    torch.stack([each.sum() for each in maps.values()]).sum().backward()
    for parameter, tried in zip(body.parameters(), twin.parameters(), strict=True):
        parameter.requires_grad_(tried.grad is not None)
    return body


def body_state(body: nn.Module, head: nn.Module | None) -> dict[str, Tensor]:
    """The weights of the backbone inside a detector, under timm's names; `head` is the box head of a C4 detector."""
    assert isinstance(body, PyramidBody | TransformerBody | C4Body)
    state = dict(body.net.state_dict())
    if isinstance(head, C4Head):
        state |= {f"layer4.{name}": value for name, value in head.layer4.state_dict().items()}
    return state
