import re
from collections.abc import Callable, Iterable

from scfs.weights.rules import Rule, rename

# timm models that torchvision also has, with its name: same layers, same shapes, other parameter names.
TORCHVISION_MODELS = {
    **{f"resnet{depth}": f"resnet{depth}" for depth in (18, 34, 50, 101, 152)},
    **{name: name for name in ("wide_resnet50_2", "wide_resnet101_2", "resnext50_32x4d", "resnext101_32x8d")},
    **{f"vit_{size}_patch{patch}_224": f"vit_{size[0]}_{patch}" for size in ("base", "large") for patch in (16, 32)},
    **{f"convnext_{size}": f"convnext_{size}" for size in ("tiny", "small", "base", "large")},
}

RESNET: list[Rule] = [(r"(conv1|bn1|layer[1-4])\..+", r"\g<0>")]

_LAYER = r"encoder.layers.encoder_layer_\1"
VIT: list[Rule] = [
    (r"cls_token", "class_token"),
    (r"pos_embed", "encoder.pos_embedding"),
    (r"patch_embed\.proj\.(\w+)", r"conv_proj.\1"),
    (r"norm\.(\w+)", r"encoder.ln.\1"),
    (r"blocks\.(\d+)\.norm([12])\.(\w+)", rf"{_LAYER}.ln_\2.\3"),
    (r"blocks\.(\d+)\.attn\.qkv\.(\w+)", rf"{_LAYER}.self_attention.in_proj_\2"),
    (r"blocks\.(\d+)\.attn\.proj\.(\w+)", rf"{_LAYER}.self_attention.out_proj.\2"),
    (r"blocks\.(\d+)\.mlp\.fc1\.(\w+)", rf"{_LAYER}.mlp.0.\2"),
    (r"blocks\.(\d+)\.mlp\.fc2\.(\w+)", rf"{_LAYER}.mlp.3.\2"),
]


def _stage(rest: str, *, after: int) -> Callable[[re.Match[str]], str]:
    """Torchvision counts downsampling and stages in one sequence: the stem is 0, stage i is 2 i + 1."""
    return lambda match: match.expand(rf"features.{2 * int(match[1]) + after}.{rest}")


CONVNEXT: list[Rule] = [
    (r"stem\.([01])\.(\w+)", r"features.0.\1.\2"),
    (r"stages\.(\d+)\.downsample\.([01])\.(\w+)", _stage(r"\2.\3", after=0)),
    (r"stages\.(\d+)\.blocks\.(\d+)\.gamma", _stage(r"\2.layer_scale", after=1)),
    (r"stages\.(\d+)\.blocks\.(\d+)\.conv_dw\.(\w+)", _stage(r"\2.block.0.\3", after=1)),
    (r"stages\.(\d+)\.blocks\.(\d+)\.norm\.(\w+)", _stage(r"\2.block.2.\3", after=1)),
    (r"stages\.(\d+)\.blocks\.(\d+)\.mlp\.fc1\.(\w+)", _stage(r"\2.block.3.\3", after=1)),
    (r"stages\.(\d+)\.blocks\.(\d+)\.mlp\.fc2\.(\w+)", _stage(r"\2.block.5.\3", after=1)),
    (r"head\.norm\.(\w+)", r"classifier.0.\1"),
]


def torchvision_names(names: Iterable[str]) -> dict[str, str] | None:
    """Timm's parameter names of a ResNet, ViT or ConvNeXt -> torchvision's; None for any other network."""
    names = list(names)
    return next((found for family in (RESNET, VIT, CONVNEXT) if (found := rename(names, family)) is not None), None)


def current_name(name: str) -> str:
    """Torchvision's current name of a parameter: its first ViT files have linear_1 and linear_2."""
    if "encoder_layer_" not in name:
        return name
    return name.replace(".mlp.linear_1.", ".mlp.0.").replace(".mlp.linear_2.", ".mlp.3.")
