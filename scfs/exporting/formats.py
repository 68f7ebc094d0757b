"""The table of export formats: a new one is a new row, a file with its function, and a choice of the setting `to`."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from scfs.backbones import Loaded
from scfs.errors import UserError
from scfs.exporting.exported import Exported
from scfs.exporting.for_detectron2 import write_detectron2
from scfs.exporting.for_onnx import write_onnx
from scfs.exporting.for_timm import write_safetensors, write_timm
from scfs.exporting.for_torch import write_program
from scfs.exporting.for_torchvision import write_torchvision
from scfs.exporting.for_transformers import write_transformers


class Format(NamedTuple):
    """A row: how OUT is named, what writes it, and whether that needs an extra."""

    suffix: str  # empty: a folder
    write: Callable[[Loaded, Path], Exported]
    extra: str | None = None


FORMATS = {
    "timm": Format(".safetensors", write_timm),
    "torchvision": Format(".pth", write_torchvision),
    "safetensors": Format(".safetensors", write_safetensors),
    "torch": Format(".pt2", write_program),
    "detectron2": Format(".pkl", write_detectron2),
    "onnx": Format(".onnx", write_onnx, "onnx"),
    "transformers": Format("", write_transformers, "transformers"),
}
# Of two formats with a suffix, the later one: --to timm also checks that timm has the model.
BY_SUFFIX = {format.suffix: name for name, format in FORMATS.items() if format.suffix}


def choose_format(to: str, out: Path) -> str:
    """The name of a format: as given, if OUT's suffix does not contradict it, or with auto, by OUT's suffix."""
    if to == "auto":
        if out.suffix not in BY_SUFFIX:
            raise UserError(
                f"Cannot export to {out}; name it .safetensors (for timm), .pth (for torchvision), .pt2 (for torch), "
                ".pkl (for detectron2) or .onnx, or add --to transformers for a folder."
            )
        return BY_SUFFIX[out.suffix]
    if to not in FORMATS:
        raise UserError(f"There is no export format '{to}'; choose one of {', '.join(FORMATS)}.")
    suffix = FORMATS[to].suffix
    if suffix and out.suffix != suffix:
        raise UserError(f"--to {to} writes a {suffix} file, not {out}; give it a name that ends in {suffix}.")
    if not suffix and out.suffix in BY_SUFFIX:
        raise UserError(f"--to {to} writes a folder, not {out}; give it a name without {out.suffix}.")
    return to
