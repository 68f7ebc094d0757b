import argparse
import pickle
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from scfs.errors import UserError
from scfs.preprocessing import Preprocessing
from scfs.regular_file import open_regular
from scfs.runs.backbone_record import BackboneRecord, choose_record
from scfs.runs.checkpoint import FORMAT
from scfs.runs.layout import LAST
from scfs.runs.zip_check import BadParts, damaged_part
from scfs.weights.torchvision_names import current_name

NETWORKS = ("teacher", "student")
PROGRAMS = (".pt2", ".onnx")  # exports that hold no weights by name
MAX_SIDE = 2**15  # of a view
MAX_EXPANDED, MAX_EXPANSION = 2**32, 8  # bytes of all tensors; times the size of their file
WRAPPERS = ("state_dict", "model", "model_state_dict")  # keys of a network in other projects' checkpoints
# What checkpoints hold besides tensors: DINO its arguments, MoCo NumPy scalars. None of it runs code.
_scalar = np.float64(0).__reduce__()[0]
SAFE: list[Any] = [
    argparse.Namespace,
    *((_scalar, f"numpy.{core}.multiarray.scalar") for core in ("core", "_core")),
    np.dtype,
    *(type(np.dtype(kind)) for kind in ("f8", "f4", "i8", "i4", "?")),
]


class Stored(NamedTuple):
    """The tensors of a file, under the file's names, and its metadata."""

    path: Path
    tensors: dict[str, Tensor]
    format: str = ""  # empty if only the names reveal it
    name: str | None = None  # of the backbone
    layers: list[str] | None = None
    size: int | None = None  # side of the views it was trained on
    network: str = "teacher"  # the one to load if there are two
    preprocessing: Preprocessing | None = None  # None if the file has none


def read_weights(target: str, network: str = "teacher") -> Stored:
    """The tensors of a run folder, a checkpoint, an exported file, or a file of another project.

    Only tensors and plain values are unpickled, so a file cannot run code. If there are two networks, `network`
    is the one to load.
    """
    if network not in NETWORKS:
        raise UserError(f"There is no network '{network}'; choose teacher or student.")
    path = Path(target).expanduser()
    if not path.exists():
        raise UserError(f"Nothing at {target}; give a run folder, a checkpoint, a file of weights, or random:NAME.")
    if path.is_dir():
        path = path / LAST
        if not path.exists():
            raise UserError(f"{target} has no checkpoint yet ({LAST}); give a run folder of scfs pretrain.")
    _refuse_unreadable(path)
    stored = _read_safetensors(path) if path.suffix == ".safetensors" else _read_torch(path, network)
    _refuse_expanded(path, stored.tensors)
    if not stored.tensors:
        raise UserError(f"{path} is not a checkpoint of scfs, and it holds no tensors; give a file of weights.")
    return stored._replace(network=network)


def _refuse_unreadable(path: Path) -> None:
    try:
        open_regular(path).close()
    except OSError as error:
        raise UserError(f"Cannot read {path}: {error.strerror}; give a file of weights.") from None


def _read_safetensors(path: Path) -> Stored:
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
            about = file.metadata() or {}
    except (SafetensorError, OSError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise UserError(f"{path} is not a safetensors file, or it is cut short ({reason}).") from None
    return _with_metadata(path, tensors, about)


def _with_metadata(path: Path, tensors: dict[str, Tensor], about: Mapping[str, str]) -> Stored:
    """The tensors of a file with what an export recorded, if anything."""
    if "scfs" not in about:
        return Stored(path, tensors)
    layers = [layer for layer in about.get("layers", "").split(",") if layer]
    size = int(about["size"]) if re.fullmatch(r"[1-9][0-9]{0,3}", about.get("size", "")) else None
    return Stored(
        path,
        tensors,
        "exported scfs",
        about.get("backbone"),
        layers or None,
        size,
        preprocessing=Preprocessing.from_metadata(about, size),
    )


def _read_torch(path: Path, network: str) -> Stored:
    content = _unpickle(path)
    if isinstance(content, Mapping) and "scfs_checkpoint" in content:
        return _own(path, content, network)
    format, names = _unwrapped(content, network)
    tensors = {current_name(name): value for name, value in names.items() if isinstance(name, str) and _is_plain(value)}
    return _with_metadata(path, tensors, _exported_metadata(content)) if not format else Stored(path, tensors, format)


def _exported_metadata(content: Any) -> Mapping[str, str]:
    """What an export recorded beside a state_dict, as strings."""
    modules = getattr(content, "_metadata", None)
    about = modules.get("scfs") if isinstance(modules, Mapping) else None
    if not isinstance(about, Mapping) or not all(isinstance(value, str) for value in about.values()):
        return {}
    return about


def _unpickle(path: Path) -> Any:
    """What torch saved, after checking every byte: torch does not notice flipped bits."""
    try:
        zipped = zipfile.is_zipfile(path)
        if zipped and (part := damaged_part(path)) is not None:
            raise UserError(f"{path} is damaged (its part {part} fails its checksum); use another copy of it.")
        with torch.serialization.safe_globals(SAFE):
            return torch.load(path, map_location="cpu", weights_only=True, mmap=zipped or None)
    except (UserError, MemoryError):
        raise
    except BadParts as error:
        raise UserError(f"{path} is damaged, or torch did not write it ({error}); use another copy of it.") from None
    except Exception as error:  # torch raises many types for a foreign file
        foreign = re.search(r"GLOBAL ([\w.]+)", str(error)) if isinstance(error, pickle.UnpicklingError) else None
        if foreign:
            raise UserError(
                f"{path} holds Python objects ({foreign[1]}), which are not loaded because they could run code; "
                "save the network's state_dict and give that."
            ) from None
        if path.suffix in PROGRAMS:
            raise UserError(
                f"{path} is an exported program, from which no weights are read; give the run that it was exported "
                "from, or export that to .safetensors or .pth."
            ) from None
        raise UserError(f"{path} is not a checkpoint of scfs or a torch file, or it is cut short.") from None


def _own(path: Path, content: Mapping[str, Any], network: str) -> Stored:
    try:
        if content["scfs_checkpoint"] != FORMAT:
            raise KeyError(f"format {content['scfs_checkpoint']}")
        found = choose_record(content, network)
        if found is not None:
            _check_record(found[1])
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} is a checkpoint of another version of scfs ({error}); use that version.") from None
    if found is None:
        raise UserError(f"{path} holds no backbone; give the checkpoint of a run, such as its {LAST}.")
    name, record = found
    format = f"scfs ({name}{_unfinished(content)})"
    return Stored(path, record.tensors, format, record.name, record.layers or None, record.size)


def _unfinished(content: Mapping[str, Any]) -> str:
    """How far pre-training had come, if it was not finished: its rates had not fallen yet, and scores are lower."""
    try:
        optim, step = content["settings"]["optim"], int(content["step"])
        total = int(optim["epochs"]) * (int(content["images"]) // int(optim["batch_size"]))
    except (KeyError, TypeError, ValueError, ZeroDivisionError):  # not of pre-training
        return ""
    return f", after {step} of {total} steps" if step < total else ""


def _check_record(record: BackboneRecord) -> None:
    """Raise a `TypeError` unless everything is of its kind."""
    names = [record.name, *record.layers]
    is_sized = isinstance(record.size, int) and 0 < record.size < MAX_SIDE
    if (
        not is_sized
        or not all(isinstance(name, str) for name in names)
        or not all(map(_is_plain, record.tensors.values()))
    ):
        raise TypeError("its backbone is not as scfs writes it")


def _unwrapped(content: Any, network: str) -> tuple[str, Mapping[Any, Any]]:
    """The network inside a checkpoint: DINO stores a teacher and a student, others one network under a common key."""
    for _ in range(4):  # a file may contain itself
        if not isinstance(content, Mapping):
            break
        for key in sorted(NETWORKS, key=lambda key: key != network):
            if isinstance(inner := content.get(key), Mapping):
                searched = any(".layer2_head." in f".{name}" for name in inner)  # a head that only SCFS has
                return f"{'released SCFS' if searched else 'DINO'} ({key})", inner
        inside = [content[key] for key in WRAPPERS if isinstance(content.get(key), Mapping)]
        if not inside:
            return "", content
        content = inside[0]
    return "", {}


def _refuse_expanded(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Refuse tensors that repeat a few numbers: a copy of them would take far more memory than the file."""
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    if size > MAX_EXPANDED and size > MAX_EXPANSION * path.stat().st_size:
        raise UserError(f"{path} holds tensors of {size:,} bytes, far more than the file; save them without expanding.")


def _is_plain(value: Any) -> bool:
    return isinstance(value, Tensor) and value.layout == torch.strided and not value.is_quantized
