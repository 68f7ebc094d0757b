"""Backbones for other libraries: one file per format, and the table of formats in formats.py."""

from scfs.exporting.exported import Exported
from scfs.exporting.for_torchvision import torchvision_state
from scfs.exporting.job import export, export_and_print

__all__ = ["Exported", "export", "export_and_print", "torchvision_state"]
