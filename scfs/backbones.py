from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import timm
import torch
from timm.models.resnet import BasicBlock, ResNet
from torch import Tensor, nn

from scfs.engine import checkpoint
from scfs.engine.runfolder import LAST
from scfs.errors import UserError

# B images, C channels, H W map height and width

# Reduced ResNets for CPUs by name: blocks and channels of each stage.
REDUCED = {"resnet10_half": ((1, 1, 1, 1), (32, 64, 128, 256))}


class Backbone(nn.Module):
    """A timm model as images -> (pooled feature, maps of some layers).

    Maps are after a stage of a convolutional network or, as a grid of patch tokens, after a block of a
    transformer. The last map is what the pooled feature is made of, so of a transformer it is after the final norm.
    """

    def __init__(self, name: str, layers: Sequence[str] | None = None, *, drop_path: float = 0.0):
        super().__init__()
        self.name = name
        self.net = _build(name, drop_path)
        info = {entry["module"]: entry["num_chs"] for entry in self.net.feature_info}
        self.layers = default_layers(list(info)) if layers is None else list(layers)
        for layer in self.layers:
            if layer not in info:
                raise UserError(f"Backbone '{name}' has no layer '{layer}'; it has {', '.join(info)}.")
        order = list(info)
        if sorted(self.layers, key=order.index) != self.layers or len(set(self.layers)) < len(self.layers):
            raise UserError(f"backbone.layers {', '.join(self.layers)} must go from shallow to deep, each once.")
        self.channels = [info[layer] for layer in self.layers]
        self.num_features: int = self.net.num_features
        self.deepest_layer = order[-1]
        self._indices = [order.index(layer) for layer in self.layers]
        self._last_index = len(order) - 1

    def forward(self, images: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """images: (B, 3, H, W) -> pooled (B, C), one map (B, C, H, W) per layer."""
        # The last map's index is always asked for: timm's ResNets stop at the deepest one asked for.
        indices = sorted({*self._indices, self._last_index})
        final, maps = self.net.forward_intermediates(images, indices=indices)
        if final.ndim == 3:  # tokens, after the final norm
            height, width = maps[-1].shape[-2:]
            patches = final[:, self.net.num_prefix_tokens :]
            maps[-1] = patches.transpose(1, 2).unflatten(2, (height, width))
        chosen = dict(zip(indices, maps, strict=True))
        return self.net.forward_head(final, pre_logits=True), tuple(chosen[i] for i in self._indices)


def default_layers(names: list[str]) -> list[str]:
    """The last three stages; of a plain stack of blocks, those after a half, three quarters and all of it."""
    if names[0].startswith("blocks."):
        return [names[len(names) * quarter // 4 - 1] for quarter in (2, 3, 4)]
    return names[-3:]


def thin_resnet(layers: tuple[int, ...], channels: tuple[int, ...], *, drop_path: float) -> ResNet:
    """A ResNet of timm with as many channels in the stem as in the first stage.

    timm fixes the stem at 64 channels, which would take half the time of a thin network. Parameter names stay timm's.
    """
    block: Any = BasicBlock
    net: Any = ResNet(block, layers, channels=channels, num_classes=0, drop_path_rate=drop_path)
    width = channels[0]
    net.conv1 = nn.Conv2d(3, width, kernel_size=7, stride=2, padding=3, bias=False)
    net.bn1 = nn.BatchNorm2d(width)
    net.layer1[0] = BasicBlock(width, width)  # the first block never drops its path
    net.feature_info[0]["num_chs"] = width
    net.init_weights(zero_init_last=False)
    return net


def _build(name: str, drop_path: float) -> Any:
    if name in REDUCED:
        return thin_resnet(*REDUCED[name], drop_path=drop_path)
    options: dict[str, Any] = {"num_classes": 0}
    if drop_path:
        options["drop_path_rate"] = drop_path
    if not timm.is_model(name):
        raise UserError(f"timm knows no model '{name}'; see timm.list_models() for the names, or use resnet10_half.")
    with torch.device("meta"):  # what it is, before what it costs
        probe = timm.create_model(name, num_classes=0)
    if isinstance(probe, ResNet):
        options["zero_init_last"] = False  # as torchvision's, which the paper used: no block starts as identity
    if hasattr(probe, "dynamic_img_size"):
        options["dynamic_img_size"] = True  # transformers see global and local views
    if not hasattr(probe, "forward_intermediates"):
        raise UserError(f"timm's '{name}' does not give feature maps; choose a model with forward_intermediates.")
    try:
        return timm.create_model(name, **options)
    except TypeError as error:
        raise UserError(f"timm's '{name}' cannot be built with {options}: {error}.") from None


class Loaded(NamedTuple):
    """A backbone with weights, and the side of the views it was trained on."""

    backbone: Backbone
    size: int | None


def load_backbone(target: str, *, network: str = "teacher", seed: int = 0) -> Loaded:
    """The backbone of a run folder or a checkpoint; or of random:NAME, a timm model with random weights."""
    if target.startswith("random:"):
        torch.manual_seed(seed)
        return Loaded(Backbone(target.removeprefix("random:")), None)
    path = Path(target)
    if not path.exists():
        raise UserError(f"Nothing at {target}; give a run folder, a checkpoint, or random:NAME.")
    if path.is_dir():
        path = path / LAST
        if not path.exists():
            raise UserError(f"{target} has no checkpoint yet ({LAST}); give a run folder of scfs pretrain.")
    saved = checkpoint.load(path)
    settings, prefix = saved["settings"], f"{network}.backbone."
    layers = settings["backbone"]["layers"]
    backbone = Backbone(settings["backbone"]["name"], None if layers == "auto" else layers)
    weights = {name.removeprefix(prefix): w for name, w in saved["method"].items() if name.startswith(prefix)}
    backbone.load_state_dict(weights)
    return Loaded(backbone, settings["views"]["global_size"])
