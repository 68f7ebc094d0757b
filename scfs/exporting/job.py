from pathlib import Path

from rich.console import Console

from scfs.backbones import load_backbone
from scfs.evaluate.settings import Export
from scfs.exporting.exported import Exported
from scfs.exporting.formats import FORMATS, choose_format
from scfs.extras import check_extra
from scfs.runs.files import check_new


def export(target: str, out: Path, *, to: str = "auto", network: str = "teacher", name: str | None = None) -> Exported:
    """Write a backbone for other libraries, in a format of the table or, with auto, in the one of OUT's suffix.

    OUT.safetensors has timm's parameter names, OUT.pth torchvision's, where torchvision has the model. Neither has
    a classifier: torchvision's models take the file with strict=False, or after their head is removed. OUT.pt2 and
    OUT.onnx are programs, with their definition. OUT.pkl is for detectron2, and a folder for transformers.
    """
    format = choose_format(to, out)
    check_new(out)
    if extra := FORMATS[format].extra:
        check_extra(extra, f"Export to {format}")
    loaded = load_backbone(target, network=network, name=name)
    loaded.backbone.eval()
    return FORMATS[format].write(loaded, out)


def export_and_print(target: str, out: Path, settings: Export, console: Console) -> Exported:
    """Export, and print how to load the file: the `scfs export` command."""
    exported = export(target, out, to=settings.to, network=settings.network, name=settings.backbone or None)
    console.print(str(exported))
    return exported
