"""Pre-train image backbones on unlabelled photos with semantics-consistent feature search (SCFS, ICCV 2023)."""

from scfs.errors import UserError

__all__ = ["UserError", "__version__"]
__version__ = "0.1.0"
