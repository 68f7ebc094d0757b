"""Pre-train image backbones on unlabelled photos with semantics-consistent feature search (SCFS, ICCV 2023)."""

import importlib
import warnings
from typing import TYPE_CHECKING, Any

from scfs.errors import UserError

if TYPE_CHECKING:
    from scfs.api import (
        PretrainedBackbone,
        attend,
        detect,
        embed,
        export,
        finetune,
        knn,
        linear,
        load_backbone,
        load_image,
        make_views,
        nearest_images,
        open_images,
        open_labelled,
        overaug,
        predict,
        pretrain,
        read_curves,
        report,
        search_attention,
        segment,
    )

__all__ = [
    "PretrainedBackbone",
    "UserError",
    "__version__",
    "attend",
    "detect",
    "embed",
    "export",
    "finetune",
    "knn",
    "linear",
    "load_backbone",
    "load_image",
    "make_views",
    "nearest_images",
    "open_images",
    "open_labelled",
    "overaug",
    "predict",
    "pretrain",
    "read_curves",
    "report",
    "search_attention",
    "segment",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import what needs torch on first use."""
    if name in __all__:
        with warnings.catch_warnings():
            # Of tqdm, which timm imports, in notebooks without ipywidgets; scfs shows no bars of tqdm's.
            warnings.filterwarnings("ignore", message="IProgress not found")
            return getattr(importlib.import_module("scfs.api"), name)
    raise AttributeError(f"module 'scfs' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)
