import io
import json
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from scfs import __version__
from scfs.backbones import Loaded
from scfs.errors import UserError
from scfs.exporting.exported import Exported, metadata_for_others
from scfs.runs.files import write_new
from scfs.weights.rules import Rule, rename

DEPTHS = {f"resnet{depth}": depth for depth in (18, 34, 50, 101, 152)}  # of the ResNets that detectron2 builds


def _block(rest: str) -> Callable[[re.Match[str]], str]:
    """In detectron2 the stem is the first stage, so that layer1 is res2."""
    return lambda match: match.expand(rf"res{int(match[1]) + 1}.\2.{rest}")


RESNET: list[Rule] = [
    (r"conv1\.weight", "stem.conv1.weight"),
    (r"bn1\.(\w+)", r"stem.conv1.norm.\1"),
    (r"layer(\d)\.(\d+)\.conv(\d)\.weight", _block(r"conv\3.weight")),
    (r"layer(\d)\.(\d+)\.bn(\d)\.(\w+)", _block(r"conv\3.norm.\4")),
    (r"layer(\d)\.(\d+)\.downsample\.0\.weight", _block("shortcut.weight")),
    (r"layer(\d)\.(\d+)\.downsample\.1\.(\w+)", _block(r"shortcut.norm.\3")),
]


def write_detectron2(loaded: Loaded, out: Path) -> Exported:
    """A pickle in the format of detectron2's model zoo, as MoCo's conversion script writes it.

    detectron2 uses a pickle with "model" and "__author__" as it is, and ignores keys that it does not know.
    """
    backbone = loaded.backbone
    depth = DEPTHS.get(backbone.name.partition(".")[0])  # without the tag of timm's own weights
    arrays = None if depth is None else detectron2_arrays(backbone.net)
    if depth is None or arrays is None:
        raise UserError(
            f"detectron2 has no backbone like '{backbone.name}', only plain ResNets ({', '.join(DEPTHS)}); use one of "
            "these, or export to a .onnx or .safetensors file."
        )
    about = metadata_for_others(loaded)
    content = {"model": arrays, "__author__": f"scfs {__version__}", "matching_heuristics": True, "scfs": about}
    write_new(out, lambda file: file.write(portable_pickle(content)))
    how = f'DetectionCheckpointer(model).load("{out}")  # or as MODEL.WEIGHTS, with this configuration:'
    how += f"\n{_configuration(loaded, out, depth)}"
    return Exported(out, len(arrays), "detectron2", how, str(loaded.preprocessing))


def detectron2_arrays(net: Any) -> dict[str, np.ndarray] | None:
    """The state of a timm ResNet as arrays under detectron2's names, without counters; None for any other network."""
    state = {name: value for name, value in net.state_dict().items() if not name.endswith("num_batches_tracked")}
    if (names := rename(state, RESNET)) is None:
        return None
    return {theirs: state[name].numpy() for name, theirs in names.items()}


def portable_pickle(content: dict[str, Any]) -> bytes:
    """A pickle that every version of NumPy reads: arrays of NumPy 2 name modules that the first versions lack."""
    buffer = io.BytesIO()
    pickler = pickle.Pickler(buffer, protocol=4)
    pickler.dispatch_table = {np.ndarray: lambda array: (np.ndarray, (array.shape, array.dtype.str, _data(array)))}
    pickler.dump(content)
    return buffer.getvalue()


def _data(array: np.ndarray) -> bytearray:
    return bytearray(array.tobytes())  # not bytes, which would make a read-only array


def _configuration(loaded: Loaded, out: Path, depth: int) -> str:
    """Settings of detectron2, in YAML: values of pixels are from 0 to 255, and RGB as in our training."""
    mean, std = (
        [round(255 * value, 4) for value in values] for values in (loaded.preprocessing.mean, loaded.preprocessing.std)
    )
    width = ", RES2_OUT_CHANNELS: 64" if depth < 50 else ""
    return (
        f"  MODEL:\n    WEIGHTS: {json.dumps(str(out))}\n    PIXEL_MEAN: {mean}\n    PIXEL_STD: {std}\n"
        # As MoCo fine-tunes: every layer, with batch norms that also train.
        "    BACKBONE: {FREEZE_AT: 0}\n"
        f"    RESNETS: {{DEPTH: {depth}{width}, STRIDE_IN_1X1: False, NORM: SyncBN}}\n"
        "  INPUT: {FORMAT: RGB}"
    )
