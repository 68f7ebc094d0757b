"""Pre-train image backbones on unlabelled photos with semantics-consistent feature search (SCFS, ICCV 2023)."""

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from scfs.errors import UserError

if TYPE_CHECKING:
    from scfs.api import (
        PretrainedBackbone,
        embed,
        export,
        finetune,
        knn,
        linear,
        load_backbone,
        pretrain,
        report,
        search_attention,
    )

__all__ = [
    "PretrainedBackbone",
    "UserError",
    "__version__",
    "embed",
    "export",
    "finetune",
    "knn",
    "linear",
    "load_backbone",
    "pretrain",
    "report",
    "search_attention",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import what needs torch on first use."""
    if name in __all__:
        return getattr(importlib.import_module("scfs.api"), name)
    raise AttributeError(f"module 'scfs' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Package(ModuleType):
    """`scfs.pretrain` and `scfs.export` are functions, even after the modules of the same names are imported.

    Importing a module sets it as an attribute of its package; `from scfs.pretrain import ...` still finds the module.
    """

    pretrain = property(lambda _: __getattr__("pretrain"), lambda _, __: None)
    export = property(lambda _: __getattr__("export"), lambda _, __: None)


sys.modules[__name__].__class__ = _Package
