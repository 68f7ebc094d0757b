import io
import json
from pathlib import Path

import torch
from torch import Tensor, nn

from scfs.backbones import Loaded
from scfs.errors import UserError
from scfs.exporting.exported import Exported, metadata_for_others
from scfs.runs.files import write_new

RECORD = "scfs.json"  # the extra file of the archive that holds the metadata


class _Pooled(nn.Module):
    """Images (B, 3, H, W) -> pooled features (B, C), without the maps."""

    def __init__(self, net: nn.Module):
        super().__init__()
        self.net = net

    def forward(self, images: Tensor) -> Tensor:
        pooled: Tensor = self.net.forward_head(self.net.forward_features(images), pre_logits=True)  # type: ignore[operator]
        return pooled


def write_program(loaded: Loaded, out: Path) -> Exported:
    """A program of torch.export for any number of images of the size that the network is evaluated at."""
    size = loaded.preprocessing.size
    try:
        program = torch.export.export(
            _Pooled(loaded.backbone.net).eval(),
            (torch.zeros(2, 3, size, size),),
            dynamic_shapes=({0: torch.export.Dim("batch")},),
        )
    except Exception as error:  # networks that cannot be traced raise many types
        reason = str(error).partition("\n")[0].rstrip(".") or type(error).__name__
        raise UserError(
            f"torch.export cannot trace '{loaded.backbone.name}' ({reason}); export to a .safetensors file, for timm."
        ) from None
    buffer = io.BytesIO()
    torch.export.save(program, buffer, extra_files={RECORD: json.dumps(metadata_for_others(loaded))})
    write_new(out, lambda file: file.write(buffer.getvalue()))
    how = f'torch.export.load("{out}").module()  # (B, 3, {size}, {size}) -> (B, C)'
    return Exported(out, len(program.state_dict), "timm", how, str(loaded.preprocessing))
