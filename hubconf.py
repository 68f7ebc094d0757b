"""The entry point for torch.hub on a clone of this repository, which need not be installed.

torch.hub.load("path/to/clone", "scfs_backbone", "runs/own_photos", source="local")
"""

from typing import Any

dependencies = ["PIL", "numpy", "safetensors", "timm", "tomli_w", "torch", "torchvision"]


def scfs_backbone(target: str, *, name: str | None = None, network: str = "teacher") -> Any:
    """The backbone of a run folder, a checkpoint, an exported file or another project's file, ready to evaluate.

    It is what `scfs.load_backbone` returns: images (B, 3, H, W) -> pooled features (B, C), with `maps`, `preprocess`,
    `load_images`, `mean`, `std` and `size`. `name` is the timm model of another project's file; without it, the usual
    ones are tried. `network` is teacher or student.
    """
    from scfs.pretrained import load_backbone  # only now: first, torch.hub checks the packages

    return load_backbone(target, name=name, network=network)
