import re
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from scfs.errors import UserError
from scfs.runs import checkpoint

NAME = "linear"


class Probe(NamedTuple):
    """A trained linear classifier, and the features it expects."""

    weight: Tensor  # (K, D)
    bias: Tensor  # (K,)
    classes: list[str]
    size: int  # of the centre crop
    blocks: int  # of a ViT
    weights: str  # fingerprint of the backbone it was trained on

    def __call__(self, features: Tensor) -> Tensor:
        """features: (B, D) -> probabilities (B, K)."""
        return torch.softmax(features @ self.weight.T + self.bias, dim=-1)


def save_probe(folder: Path, probe: Probe) -> Path:
    """Save a probe next to earlier ones: linear.pt, linear-2.pt, ..."""
    number = max([0, *_numbered(folder)]) + 1
    path = folder / (f"{NAME}.pt" if number == 1 else f"{NAME}-{number}.pt")
    checkpoint.save(path, {NAME: probe._asdict()})
    return path


def read_probe(path: Path) -> Probe | None:
    """The classifier in a probe's file, or in the checkpoint of a fine-tuned network; None if it has none."""
    content: dict[str, Any] = checkpoint.load(path)
    try:
        return Probe(**content[NAME]) if NAME in content else None
    except TypeError:  # other fields
        raise UserError(f"{path} is a probe of another version of scfs; train it again with scfs linear.") from None


def probe_files(folder: Path) -> list[Path]:
    """The saved probes of a run, oldest first."""
    saved = _numbered(folder)
    return [saved[number] for number in sorted(saved)]


def _numbered(folder: Path) -> dict[int, Path]:
    """Saved probes by number."""
    matches = ((re.fullmatch(rf"{NAME}(?:-(\d+))?\.pt", path.name), path) for path in folder.glob(f"{NAME}*.pt"))
    return {int(match[1] or 1): path for match, path in matches if match}
