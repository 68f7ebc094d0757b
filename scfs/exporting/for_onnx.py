from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from scfs.backbones import Backbone, Loaded
from scfs.errors import UserError
from scfs.exporting.difference import relative_difference
from scfs.exporting.exported import Exported, metadata_for_others
from scfs.runs.files import write_new

# B images, C channels, H W map height and width

TOLERANCE = 1e-4  # of onnxruntime's outputs, relative to the largest value of each or to 1
INPUT, POOLED = "images", "pooled"
Shape = tuple[int, int, int]  # B H W


class Untraceable(Exception):  # noqa: N818 - a finding: another way is tried
    """Why a network cannot be written as an ONNX program, or why the program is not the network."""


class _Outputs(nn.Module):
    """Images (B, 3, H, W) -> pooled features (B, C) and the maps (B, C, H, W), in one tuple."""

    def __init__(self, backbone: Backbone):
        super().__init__()
        self.backbone = backbone

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        pooled, maps = self.backbone(images)
        return (pooled, *maps)


def write_onnx(loaded: Loaded, out: Path) -> Exported:
    """An ONNX program for images of any number and size, or of one size if the network can only be traced so."""
    backbone, size = loaded.backbone, loaded.preprocessing.size
    try:
        program, note = _program(backbone, size)
    except Untraceable as reason:
        raise UserError(
            f"'{backbone.name}' cannot be written for ONNX, because {reason}; export to a .safetensors file, for timm."
        ) from None
    _set_metadata(program, metadata_for_others(loaded))
    write_new(out, lambda file: file.write(program.SerializeToString()))
    names = ", ".join(_output_names(backbone))
    how = f'onnxruntime.InferenceSession("{out}").run(None, {{"{INPUT}": images}})  # {names}'
    return Exported(out, len(program.graph.initializer), "", how, str(loaded.preprocessing), note)


def _program(backbone: Backbone, size: int) -> tuple[Any, str]:
    """The program, checked at two numbers of images and two sizes if it takes them, and a note on what it takes."""
    step = max(entry["reduction"] for entry in backbone.net.feature_info)
    try:
        if not _takes(backbone, size + step):
            raise Untraceable("the network fails, too")
        # Not at a square size: at the size of a ViT's own grid, its position embeddings would be fixed.
        program = _trace(backbone, (2, size + step, size + 2 * step), {0: "batch", 2: "height", 3: "width"})
        _check(program, backbone, [(1, size, size), (3, size, size + step)])
    except Untraceable as reason:
        program = _trace(backbone, (2, size, size), {0: "batch"})
        _check(program, backbone, [(1, size, size), (3, size, size)])
        return program, f"It takes any number of images, of {size} x {size} only: at other sizes, {reason}."
    return program, "It takes images of any number and of any size that the network takes."


def _takes(backbone: Backbone, size: int) -> bool:
    try:
        backbone.check_sizes(size)
    except UserError:
        return False
    return True


def _trace(backbone: Backbone, shape: Shape, dynamic: dict[int, str]) -> Any:
    """A `ModelProto` whose given axes are dynamic."""
    batch, height, width = shape
    try:
        program = torch.onnx.export(
            _Outputs(backbone).eval(),
            (torch.zeros(batch, 3, height, width),),
            dynamo=True,
            dynamic_shapes=(dynamic,),
            input_names=[INPUT],
            output_names=_output_names(backbone),
            verbose=False,
        )
        assert program is not None
        return program.model_proto
    except Exception as error:  # networks that cannot be traced raise many types
        cause = error.__cause__ or error
        reason = str(cause).strip().partition("\n")[0].rstrip(".:") or type(cause).__name__
        raise Untraceable(f"it cannot be traced ({reason})") from None


@torch.no_grad()
def _check(program: Any, backbone: Backbone, shapes: list[Shape]) -> None:
    """Raise `Untraceable` if onnxruntime computes anything else than torch."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # its errors are raised
    session = onnxruntime.InferenceSession(program.SerializeToString(), options, providers=["CPUExecutionProvider"])
    generator = torch.Generator().manual_seed(0)
    for batch, height, width in shapes:
        images = torch.randn(batch, 3, height, width, generator=generator)
        try:
            found, expected = session.run(None, {INPUT: images.numpy()}), _Outputs(backbone)(images)
        except Exception:  # of onnxruntime or of the network
            raise Untraceable(f"images of {height} x {width} fail") from None
        for name, ours, theirs in zip(_output_names(backbone), expected, found, strict=True):
            if (difference := relative_difference(ours, torch.from_numpy(theirs))) > TOLERANCE:
                raise Untraceable(f"onnxruntime's {name} differs by {difference:.1e} at {height} x {width}")


def _output_names(backbone: Backbone) -> list[str]:
    return [POOLED, *backbone.layers]


def _set_metadata(program: Any, about: dict[str, str]) -> None:
    """Set the metadata of a program, without the tracer's notes, which name files of this machine."""
    import onnx

    for part in (program.graph, *program.graph.node):
        del part.metadata_props[:]
    onnx.helper.set_model_props(program, about)
