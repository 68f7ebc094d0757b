"""Pre-train image backbones on unlabelled photos with semantics-consistent feature search (SCFS, ICCV 2023)."""

import importlib
from typing import TYPE_CHECKING, Any

from scfs.errors import UserError

if TYPE_CHECKING:
    from scfs.api import PretrainedBackbone, load_backbone, pretrain_backbone, search_attention

__all__ = [
    "PretrainedBackbone",
    "UserError",
    "__version__",
    "load_backbone",
    "pretrain_backbone",
    "search_attention",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import what needs torch when it is first asked for."""
    if name in __all__:
        return getattr(importlib.import_module("scfs.api"), name)
    raise AttributeError(f"module 'scfs' has no attribute '{name}'")
