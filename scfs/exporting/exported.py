from pathlib import Path
from typing import NamedTuple

from scfs import __version__
from scfs.backbones import Loaded


class Exported(NamedTuple):
    """A written file or folder, and how other programs load it."""

    path: Path
    num_tensors: int
    names: str  # the library whose parameter names they have; empty: none
    how: str
    images: str  # how to prepare images
    notes: str = ""  # what else the user needs

    def __str__(self) -> str:
        notes = f"\n{self.notes}" if self.notes else ""
        return f"{self.path}: {self._tensors()}; load them with\n  {self.how}\nImages: {self.images}.{notes}"

    def __repr__(self) -> str:
        return f"Exported({self.path}, {self._tensors()})"

    def _tensors(self) -> str:
        return f"{self.num_tensors} tensors" + (f" under {self.names}'s names" if self.names else "")


def metadata(loaded: Loaded) -> dict[str, str]:
    """What a file records about its backbone, for scfs to read: the size only if it is known."""
    backbone = loaded.backbone
    about = {"scfs": __version__, "backbone": backbone.name, "layers": ",".join(backbone.layers)}
    about |= loaded.preprocessing.as_metadata()
    return about | ({} if loaded.size is None else {"size": str(loaded.size)})


def metadata_for_others(loaded: Loaded) -> dict[str, str]:
    """What a file records for other programs: always with the size at which images are prepared."""
    return metadata(loaded) | {"size": str(loaded.preprocessing.size)}
