import difflib
import hashlib
import inspect
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import timm
import torch
from timm.models.resnet import BasicBlock, ResNet
from torch import Tensor, nn

from scfs.errors import UserError
from scfs.preprocessing import USUAL_SIZE, Preprocessing
from scfs.runs.backbone_record import BackboneRecord
from scfs.weights.classifier_head import match_head
from scfs.weights.match import LoadReport, Mismatch, match_tensors
from scfs.weights.read import Stored, read_weights

# B images, C channels, H W map height and width

# Reduced ResNets for CPUs by name: blocks and channels of each stage.
REDUCED = {
    "resnet10_quarter": ((1, 1, 1, 1), (16, 32, 64, 128)),
    "resnet10_half": ((1, 1, 1, 1), (32, 64, 128, 256)),
    "resnet18_half": ((2, 2, 2, 2), (32, 64, 128, 256)),
    "resnet10": ((1, 1, 1, 1), (64, 128, 256, 512)),
}
# Backbones to try for a file of weights that does not name its own, by the suffix of one of its entries.
USUAL = {
    ("conv1.weight",): (*REDUCED, *(f"resnet{depth}" for depth in (18, 34, 50, 101, 152))),
    ("cls_token", "class_token"): (
        *(f"vit_{size}_patch16_224" for size in ("tiny", "small", "base", "large")),
        *(f"vit_{size}_patch8_224" for size in ("small", "base")),
    ),
    ("stem.0.weight", "features.0.0.weight"): tuple(f"convnext_{size}" for size in ("tiny", "small", "base")),
}


class Backbone(nn.Module):
    """A timm model as images -> (pooled feature, maps of some layers).

    Maps are after a stage of a convolutional network or, as a grid of patch tokens, after a block of a
    transformer. The last map is what the pooled feature is made of, so of a ViT or Swin it is after the final norm.
    """

    def __init__(self, name: str, layers: Sequence[str] | None = None, *, drop_path: float = 0.0):
        super().__init__()
        self.name = name
        self.net = _build(name, drop_path)
        info = {entry["module"]: entry["num_chs"] for entry in self.net.feature_info}
        self.layers = default_layers(self.net.feature_info) if layers is None else list(layers)
        for layer in self.layers:
            if layer not in info:
                raise UserError(f"Backbone '{name}' has no layer '{layer}'; it has {', '.join(info)}.")
        order = list(info)
        if sorted(self.layers, key=order.index) != self.layers or len(set(self.layers)) < len(self.layers):
            raise UserError(f"backbone.layers {', '.join(self.layers)} must go from shallow to deep, each once.")
        self.channels = [info[layer] for layer in self.layers]
        # What leaves timm's heads may be wider than the last map.
        self.num_features: int = getattr(self.net, "head_hidden_size", None) or self.net.num_features
        self.deepest_layer = order[-1]
        self._indices = [order.index(layer) for layer in self.layers]
        self._last_index = len(order) - 1

    def forward(self, images: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """images: (B, 3, H, W) -> pooled (B, C), one map (B, C, H, W) per layer."""
        # The last map's index is always requested: timm's ResNets stop at the deepest one requested.
        indices = sorted({*self._indices, self._last_index})
        final, maps = self.net.forward_intermediates(images, indices=indices)
        if hasattr(self.net, "num_prefix_tokens") and final.ndim == 3:  # tokens of a ViT, after the final norm
            height, width = maps[-1].shape[-2:]
            patches = final[:, self.net.num_prefix_tokens :]
            maps[-1] = patches.transpose(1, 2).unflatten(2, (height, width))
        elif getattr(self.net, "output_fmt", "") == "NHWC" and final.ndim == 4:  # Swin, after the final norm
            maps[-1] = final.permute(0, 3, 1, 2)
        chosen = dict(zip(indices, maps, strict=True))
        return self.net.forward_head(final, pre_logits=True), tuple(chosen[i] for i in self._indices)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.summary()})"

    def summary(self) -> str:
        """Name, width and search layers in a line; the modules are those of `net`."""
        return f"{self.name}, {self.num_features} features, maps of {', '.join(self.layers)}"

    def with_layers(self, layers: Sequence[str]) -> "Backbone":
        """A backbone of the same network, weights included, with the maps of other layers, in any order."""
        order = [entry["module"] for entry in self.net.feature_info]
        known = sorted({*layers} & {*order}, key=order.index)
        with torch.device("meta"):  # checks the names
            other = Backbone(self.name, [*known, *(layer for layer in layers if layer not in order)])
        other.net = self.net
        return other

    def record(self, size: int) -> BackboneRecord:
        """Name, layers and weights as checkpoints hold them; size: side of the views it is trained on."""
        return BackboneRecord(self.name, list(self.layers), size, self.net.state_dict())

    def check_sizes(self, *sizes: int) -> None:
        """Raise a `UserError` for image sizes that the network cannot take; tried on the meta device."""
        with torch.device("meta"):
            twin = Backbone(self.name, self.layers).eval()
            for size in sizes:
                try:
                    pooled, maps = twin(torch.empty(2, 3, size, size))
                except Exception as error:  # networks raise many types
                    raise self._refusal(size, self._reason(error)) from None
                shapes = [pooled.shape, *(each.shape[:2] for each in maps)]
                if shapes != [(2, channels) for channels in (self.num_features, *self.channels)]:
                    raise self._refusal(size, "its maps are not as timm describes them")

    def unused_by_maps(self, size: int) -> list[str]:
        """Names of the parameters on which none of the maps depends."""
        with torch.device("meta"):
            twin = Backbone(self.name, self.layers)
            maps = twin(torch.empty(2, 3, size, size))[1]
        torch.stack([each.sum() for each in maps]).sum().backward()
        return [name for name, parameter in twin.named_parameters() if parameter.grad is None]

    def _refusal(self, size: int, reason: str) -> UserError:
        return UserError(
            f"Backbone '{self.name}' cannot take images of {size} x {size} ({reason.rstrip('.')}); "
            "choose another size, or a backbone that takes any, such as a ResNet or ConvNeXt."
        )

    def _reason(self, error: Exception) -> str:
        """The sentence of timm or, for tensors that do not fit together, the size that the network is built for."""
        _, *built_for = getattr(self.net, "pretrained_cfg", {}).get("input_size") or [3]
        if built_for and not isinstance(error, AssertionError):
            return f"it is built for {built_for[0]} x {built_for[1]}"
        return str(error).partition("\n")[0] or type(error).__name__


def default_layers(feature_info: Sequence[Mapping[str, Any]]) -> list[str]:
    """The last three stages; in a plain stack of blocks, those after a half, three quarters and all of it."""
    names = [entry["module"] for entry in feature_info]
    if len({entry["reduction"] for entry in feature_info}) == 1:  # no stages: all maps have the same size
        return [names[len(names) * quarter // 4 - 1] for quarter in (2, 3, 4)]
    return names[-3:]


def thin_resnet(layers: tuple[int, ...], channels: tuple[int, ...], *, drop_path: float) -> ResNet:
    """A timm ResNet with as many channels in the stem as in the first stage.

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
    if not timm.is_model(name):
        nearest = difflib.get_close_matches(name, [*REDUCED, *timm.list_models()], n=3)
        hint = f"the nearest are {', '.join(nearest)}" if nearest else "see timm.list_models() for the names"
        raise UserError(f"timm has no model '{name}'; {hint}.")
    options: dict[str, Any] = {"num_classes": 0}
    with torch.device("meta"):  # what it is, before it costs memory
        probe = _create(name, options)
    if not hasattr(probe, "forward_intermediates"):
        raise UserError(f"timm's '{name}' does not return feature maps; choose a model with forward_intermediates.")
    if drop_path or "drop_path_rate" in _parameters(probe):  # Swin's default is not 0
        options["drop_path_rate"] = drop_path
    if isinstance(probe, ResNet):
        options["zero_init_last"] = False  # as torchvision's, which the paper used: no block starts as identity
    return _create(name, options | any_size_options(probe))


def any_size_options(net: nn.Module) -> dict[str, bool]:
    """The options with which timm builds a transformer for images of several sizes: global and local views."""
    if hasattr(net, "dynamic_img_size"):
        return {"dynamic_img_size": True}
    return {"strict_img_size": False} if "strict_img_size" in _parameters(net) else {}  # Swin: windows are padded


def _parameters(net: nn.Module) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(type(net).__init__).parameters


def _create(name: str, options: dict[str, Any]) -> Any:
    try:
        return timm.create_model(name, **options)
    except (TypeError, RuntimeError) as error:  # an unsupported option, or an unknown tag after a dot
        reason = str(error).partition("\n")[0].rstrip(".")
        raise UserError(f"timm's '{name}' cannot be built with {options}: {reason}.") from None


def fingerprint(network: nn.Module) -> str:
    """A hash of the weights."""
    digest = hashlib.blake2b(digest_size=8)
    for name, value in sorted(network.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


class Loaded(NamedTuple):
    """A backbone with weights, the side of the views it was trained on, and the report of loading it."""

    backbone: Backbone
    size: int | None  # None if unknown
    report: LoadReport | None = None  # None for random weights
    stored_preprocessing: Preprocessing | None = None  # None if the file has none

    @property
    def preprocessing(self) -> Preprocessing:
        """From the file or, if it has none, as in our own training and evaluation."""
        return self.stored_preprocessing or Preprocessing(self.size or USUAL_SIZE)

    def evaluated_size(self, setting: int | str) -> int:
        """The side of centre crops, checked: as set or, with auto, as in training."""
        size = (self.size or USUAL_SIZE) if setting == "auto" else int(setting)
        self.backbone.check_sizes(size)
        return size


def load_backbone(target: str, *, name: str | None = None, network: str = "teacher", seed: int = 0) -> Loaded:
    """The backbone of a run folder, a checkpoint, an exported file or a file of another project.

    `name` is the timm model of another project's file; without it, the usual ones are tried. The target random:NAME is
    a timm model with random weights.
    """
    if target.startswith("random:"):
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            return Loaded(Backbone(target.removeprefix("random:")), None)
    stored = read_weights(target, network)
    if stored.name is not None and name not in (None, stored.name):
        raise UserError(f"{stored.path} holds backbone '{stored.name}', not '{name}'; omit the name.")
    found = stored.name or name or guess_name(stored)
    if found is None:
        raise UserError(
            f"{stored.path} is not a checkpoint of scfs, and its tensors (such as '{next(iter(stored.tensors))}') "
            "match none of the backbones that are tried; give the name of the timm model."
        )
    backbone = Backbone(found, stored.layers)
    return Loaded(backbone, stored.size, _load_tensors(backbone, stored), stored.preprocessing)


def load_weights(backbone: Backbone, target: str, *, network: str = "teacher") -> LoadReport:
    """Load the weights of anything that `load_backbone` reads into a backbone of the same architecture."""
    return _load_tensors(backbone, read_weights(target, network))


def load_head(target: str, backbone: Backbone, *, network: str = "teacher") -> tuple[Tensor, Tensor]:
    """Weight (K, C) and bias (K,) of the linear classifier that another project's file holds beside its backbone."""
    stored = read_weights(target, network)
    try:
        return match_head(stored, backbone.net, backbone.num_features)
    except Mismatch as mismatch:
        raise UserError(
            f"{stored.path} holds no classifier of backbone '{backbone.name}': {mismatch}; give the weights of a whole "
            "classifier, or a run with a probe of scfs linear."
        ) from None


def guess_name(stored: Stored) -> str | None:
    """The first of the usual backbones that a file's tensors match."""
    likely = (names for ends, names in USUAL.items() if any(tensor.endswith(ends) for tensor in stored.tensors))
    for name in itertools.chain.from_iterable(likely):
        with torch.device("meta"):
            net = _build(name, 0.0) if name in REDUCED else _create(name, {"num_classes": 0})
        try:
            match_tensors(stored, net)
        except Mismatch:
            continue
        return name
    return None


def _load_tensors(backbone: Backbone, stored: Stored) -> LoadReport:
    try:
        tensors, report = match_tensors(stored, backbone.net)
    except Mismatch as mismatch:
        other = stored.name or guess_name(stored)
        looks = f"it looks like {other}" if other and other != backbone.name else "it may be another architecture"
        raise UserError(
            f"{stored.path} does not fit backbone '{backbone.name}': {mismatch}; {looks}: "
            "give the name of its backbone, or another file."
        ) from None
    for name, tensor in tensors.items():
        if not torch.isfinite(tensor).all():
            raise UserError(f"{stored.path} is damaged: '{name}' is not finite everywhere; use another copy of it.")
    backbone.net.load_state_dict(tensors, strict=False)  # only batch counters may be missing
    return report
