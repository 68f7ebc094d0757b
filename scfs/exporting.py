import io
from pathlib import Path
from typing import NamedTuple

import safetensors.torch
import torch
from rich.console import Console
from torch import Tensor, nn

from scfs import __version__
from scfs.backbones import REDUCED, Backbone, any_size_options, load_backbone
from scfs.errors import UserError
from scfs.evaluate.settings import Export
from scfs.preprocessing import Preprocessing
from scfs.runs.files import check_new, write_new
from scfs.weights.torchvision_names import TORCHVISION_MODELS, torchvision_names


class Exported(NamedTuple):
    """A written file and how other programs load it."""

    path: Path
    num_tensors: int
    names: str  # the library whose parameter names they have
    how: str
    images: str  # how to prepare images

    def __str__(self) -> str:
        return (
            f"{self.path}: {self.num_tensors} tensors under {self.names}'s names; load them with\n  {self.how}\n"
            f"Images: {self.images}."
        )


def export(target: str, out: Path, *, network: str = "teacher", name: str | None = None) -> Exported:
    """Write a backbone for other libraries.

    OUT.safetensors has timm's parameter names, OUT.pth torchvision's, where torchvision has the model. Neither has
    a classifier: torchvision's models take the file with strict=False, or after their head is removed. OUT.pt2 is a
    program of torch.export, with its definition.
    """
    if out.suffix not in (".safetensors", ".pth", ".pt2"):
        raise UserError(
            f"Cannot export to {out}; name it .safetensors (for timm), .pth (for torchvision) or .pt2 (for torch)."
        )
    check_new(out)
    loaded = load_backbone(target, network=network, name=name)
    backbone = loaded.backbone
    if out.suffix == ".pth":
        return _write_torchvision(backbone, out, str(loaded.preprocessing))
    if out.suffix == ".pt2":
        return _write_program(backbone, out, loaded.preprocessing)
    about = {"format": "pt", "scfs": __version__, "backbone": backbone.name, "layers": ",".join(backbone.layers)}
    about |= loaded.preprocessing.as_metadata()
    if loaded.size is not None:
        about["size"] = str(loaded.size)
    return _write_timm(backbone, out, about, loaded.preprocessing)


def _write_timm(backbone: Backbone, out: Path, about: dict[str, str], preprocessing: Preprocessing) -> Exported:
    tensors = {name: tensor.contiguous() for name, tensor in backbone.net.state_dict().items()}
    write_new(out, lambda file: file.write(safetensors.torch.save(tensors, about)))
    how = f'scfs.load_backbone("{out}")  # timm has no {backbone.name}; for use without scfs, export to a .pt2 file'
    if backbone.name not in REDUCED:
        # timm's own configuration may differ: that of many ViTs has a mean of 0.5.
        overlay = f"pretrained_cfg_overlay=dict(\n    {preprocessing.as_timm()})"
        how = (
            f'timm.create_model("{backbone.name}", num_classes=0, checkpoint_path="{out}", {_grid(backbone)}{overlay})'
        )
    return Exported(out, len(tensors), "timm", how, str(preprocessing))


def _grid(backbone: Backbone) -> str:
    """Arguments that keep a transformer's positions or windows, which an overlay with another size would change."""
    if not (options := any_size_options(backbone.net)):
        return ""
    listed = "".join(f"{name}={value}, " for name, value in options.items())
    return f"img_size={tuple(backbone.net.patch_embed.img_size)}, {listed}"


def _write_torchvision(backbone: Backbone, out: Path, images: str) -> Exported:
    model = TORCHVISION_MODELS.get(backbone.name.partition(".")[0])  # without the tag of timm's own weights
    tensors = torchvision_state(backbone.net)
    if model is None or tensors is None:
        raise UserError(f"torchvision has no model like '{backbone.name}'; export to a .safetensors file, for timm.")
    write_new(out, lambda file: torch.save(tensors, file))
    how = f'torchvision.models.{model}().load_state_dict(torch.load("{out}"), strict=False)  # it has no classifier'
    return Exported(out, len(tensors), "torchvision", how, images)


class _Pooled(nn.Module):
    """Images (B, 3, H, W) -> pooled features (B, C), without the maps."""

    def __init__(self, net: nn.Module):
        super().__init__()
        self.net = net

    def forward(self, images: Tensor) -> Tensor:
        pooled: Tensor = self.net.forward_head(self.net.forward_features(images), pre_logits=True)  # type: ignore[operator]
        return pooled


def _write_program(backbone: Backbone, out: Path, preprocessing: Preprocessing) -> Exported:
    """A program for any number of images of the size that the network is evaluated at."""
    images = torch.zeros(2, 3, preprocessing.size, preprocessing.size)
    try:
        program = torch.export.export(
            _Pooled(backbone.net).eval(), (images,), dynamic_shapes=({0: torch.export.Dim("batch")},)
        )
    except Exception as error:  # networks that cannot be traced raise many types
        reason = str(error).partition("\n")[0].rstrip(".") or type(error).__name__
        raise UserError(
            f"torch.export cannot trace '{backbone.name}' ({reason}); export to a .safetensors file, for timm."
        ) from None
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    write_new(out, lambda file: file.write(buffer.getvalue()))
    how = f'torch.export.load("{out}").module()  # (B, 3, {preprocessing.size}, {preprocessing.size}) -> (B, C)'
    return Exported(out, len(program.state_dict), "timm", how, str(preprocessing))


def torchvision_state(net: nn.Module) -> dict[str, Tensor] | None:
    """The state of a timm network under torchvision's names; None if it is not a ResNet, ViT or ConvNeXt."""
    state = net.state_dict()
    if (names := torchvision_names(state)) is None:
        return None
    # The layer scales of ConvNeXt are (C, 1, 1) in torchvision, (C,) in timm.
    return {
        theirs: state[name].reshape(-1, 1, 1) if theirs.endswith(".layer_scale") else state[name]
        for name, theirs in names.items()
    }


def export_and_print(target: str, out: Path, settings: Export, console: Console) -> Exported:
    """Export, and print how to load the file: the `scfs export` command."""
    exported = export(target, out, network=settings.network, name=settings.backbone or None)
    console.print(str(exported), highlight=False, markup=False, soft_wrap=True)
    return exported
