"""The record of a backbone and its weights in a checkpoint, the same for every kind of training."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from torch import Tensor

KEY = "backbones"  # in a checkpoint: records by network
FINE_TUNED = "fine-tuned"


class BackboneRecord(NamedTuple):
    """What is needed to build a backbone and load its weights."""

    name: str  # of the timm model
    layers: list[str]  # search layers, shallow to deep
    size: int  # side of the views it was trained on
    tensors: dict[str, Tensor]


def as_content(records: Mapping[str, BackboneRecord]) -> dict[str, Any]:
    """Records by network, as part of a checkpoint.

    Tensors that the checkpoint holds elsewhere too, as pre-training's does, are stored once.
    """
    return {KEY: {network: record._asdict() for network, record in records.items()}}


def read_records(content: Mapping[str, Any]) -> dict[str, BackboneRecord]:
    """The backbones of a checkpoint by network; empty if it has none."""
    if KEY in content:
        return {network: BackboneRecord(**values) for network, values in content[KEY].items()}
    return _version_0_1(content)


def choose_record(content: Mapping[str, Any], network: str) -> tuple[str, BackboneRecord] | None:
    """The record of a network, or the only one there is, with the network's name."""
    records = read_records(content)
    if network in records:
        return network, records[network]
    return next(iter(records.items())) if len(records) == 1 else None


def _version_0_1(content: Mapping[str, Any]) -> dict[str, BackboneRecord]:
    """Version 0.1 wrote no records: pre-trained networks are in the method, a fine-tuned one is on its own."""
    if "method" in content:
        states = {network: _below(content["method"], f"{network}.backbone.net.") for network in ("teacher", "student")}
    elif "tuned" in content:
        states = {FINE_TUNED: _below(content["tuned"], "net.")}
    else:
        return {}
    backbone, size = content["settings"]["backbone"], content["settings"]["views"]["global_size"]
    layers = [] if backbone["layers"] == "auto" else list(backbone["layers"])
    return {network: BackboneRecord(backbone["name"], layers, size, state) for network, state in states.items()}


def _below(state: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in state.items() if name.startswith(prefix)}
