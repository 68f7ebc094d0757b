from pathlib import Path

import safetensors.torch

from scfs.backbones import REDUCED, Backbone, Loaded, any_size_options
from scfs.errors import UserError
from scfs.exporting.exported import Exported, metadata
from scfs.runs.files import write_new


def write_timm(loaded: Loaded, out: Path) -> Exported:
    """A safetensors file of a model that timm can build."""
    if loaded.backbone.name in REDUCED:
        raise UserError(
            f"timm has no model '{loaded.backbone.name}'; export with --to safetensors, for scfs.load_backbone, or to "
            "a .pt2 or .onnx file, which contain their model."
        )
    return write_safetensors(loaded, out)


def write_safetensors(loaded: Loaded, out: Path) -> Exported:
    """A safetensors file with timm's parameter names, of any backbone."""
    backbone, preprocessing = loaded.backbone, loaded.preprocessing
    tensors = {name: tensor.contiguous() for name, tensor in backbone.net.state_dict().items()}
    about = {"format": "pt"} | metadata(loaded)
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
