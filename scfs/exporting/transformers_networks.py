"""ResNets and ViTs of timm as those of Hugging Face's transformers: configuration and parameter names."""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from timm.models.resnet import BasicBlock, Bottleneck, ResNet
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor

from scfs.exporting.position_embeddings import position_embeddings
from scfs.weights.rules import Rule, rename

BLOCKS = {BasicBlock: "basic", Bottleneck: "bottleneck"}


def _stage(rest: str) -> Callable[[re.Match[str]], str]:
    """Stages count from 0."""
    return lambda match: match.expand(rf"encoder.stages.{int(match[1]) - 1}.layers.\2.{rest}")


def _convolution(rest: str) -> Callable[[re.Match[str]], str]:
    """Stages and the convolutions of a block count from 0."""
    return lambda match: _stage(f"layer.{int(match[3]) - 1}.{rest}")(match)


RESNET: list[Rule] = [
    (r"conv1\.weight", "embedder.embedder.convolution.weight"),
    (r"bn1\.(\w+)", r"embedder.embedder.normalization.\1"),
    (r"layer(\d)\.(\d+)\.conv(\d)\.weight", _convolution("convolution.weight")),
    (r"layer(\d)\.(\d+)\.bn(\d)\.(\w+)", _convolution(r"normalization.\4")),
    (r"layer(\d)\.(\d+)\.downsample\.0\.weight", _stage("shortcut.convolution.weight")),
    (r"layer(\d)\.(\d+)\.downsample\.1\.(\w+)", _stage(r"shortcut.normalization.\3")),
]

_LAYER = r"encoder.layer.\1"  # as in files of every version; version 5 renames on reading
VIT: list[Rule] = [
    (r"cls_token", "embeddings.cls_token"),
    (r"pos_embed", "embeddings.position_embeddings"),
    (r"patch_embed\.proj\.(\w+)", r"embeddings.patch_embeddings.projection.\1"),
    (r"norm\.(\w+)", r"layernorm.\1"),
    (r"blocks\.(\d+)\.norm1\.(\w+)", rf"{_LAYER}.layernorm_before.\2"),
    (r"blocks\.(\d+)\.norm2\.(\w+)", rf"{_LAYER}.layernorm_after.\2"),
    (r"blocks\.(\d+)\.attn\.(query|key|value)\.(\w+)", rf"{_LAYER}.attention.attention.\2.\3"),
    (r"blocks\.(\d+)\.attn\.proj\.(\w+)", rf"{_LAYER}.attention.output.dense.\2"),
    (r"blocks\.(\d+)\.mlp\.fc1\.(\w+)", rf"{_LAYER}.intermediate.dense.\2"),
    (r"blocks\.(\d+)\.mlp\.fc2\.(\w+)", rf"{_LAYER}.output.dense.\2"),
]


class Converted(NamedTuple):
    """A network of transformers: its class, configuration and tensors, and how to get its pooled feature."""

    model: str
    config: dict[str, Any]
    tensors: dict[str, Tensor]
    options: dict[str, Any]  # of from_pretrained
    pooled: Callable[[Any], Tensor]  # of the model's output
    pooled_code: str  # the same, for users


def converted(net: Any, size: int) -> Converted | None:
    """A timm network with the names of transformers, for images of a size; None if it is no plain ResNet or ViT."""
    if isinstance(net, ResNet):
        return _resnet(net)
    return _vit(net, size) if isinstance(net, VisionTransformer) else None


def _resnet(net: Any) -> Converted | None:
    state, stages = net.state_dict(), [net.layer1, net.layer2, net.layer3, net.layer4]
    kinds = {BLOCKS.get(type(block)) for stage in stages for block in stage}
    if len(kinds) > 1 or kinds == {None} or (names := rename(state, RESNET)) is None:
        return None
    config = {
        "layer_type": kinds.pop(),
        "depths": [len(stage) for stage in stages],
        "embedding_size": net.conv1.out_channels,
        "hidden_sizes": [entry["num_chs"] for entry in net.feature_info[1:]],
        "downsample_in_first_stage": False,
        "downsample_in_bottleneck": False,
    }
    tensors = {theirs: state[name] for name, theirs in names.items()}
    return Converted(
        "ResNetModel", config, tensors, {}, lambda output: output.pooler_output.flatten(1), "pooler_output.flatten(1)"
    )


def _vit(net: Any, size: int) -> Converted | None:
    state = _split_attention(net.state_dict())
    if (names := rename(state, VIT)) is None or "pos_embed" not in state:
        return None
    state["pos_embed"] = position_embeddings(net, size)
    config = {
        "hidden_size": net.embed_dim,
        "num_hidden_layers": len(net.blocks),
        "num_attention_heads": net.blocks[0].attn.num_heads,
        "intermediate_size": net.blocks[0].mlp.fc1.out_features,
        "layer_norm_eps": getattr(net.norm, "eps", 1e-6),
        "image_size": size,
        "patch_size": net.patch_embed.patch_size[0],
        "qkv_bias": "blocks.0.attn.query.bias" in state,
    }
    tensors = {theirs: state[name].contiguous() for name, theirs in names.items()}
    return Converted(
        "ViTModel",
        config,
        tensors,
        {"add_pooling_layer": False},  # its own pooling has weights, which timm's ViTs lack
        lambda output: output.last_hidden_state[:, 0],
        "last_hidden_state[:, 0]",
    )


def _split_attention(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """A state with queries, keys and values apart, which timm computes with one matrix."""
    split = {}
    for name, value in state.items():
        if ".attn.qkv." not in name:
            split[name] = value
            continue
        for part, tensor in zip(("query", "key", "value"), value.chunk(3), strict=True):
            split[name.replace(".qkv.", f".{part}.")] = tensor
    return split
