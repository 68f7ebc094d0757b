import re
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from scfs.errors import UserError
from scfs.runs import checkpoint
from scfs.runs.layout import LAST

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


def load_probe(folder: Path, weights: str) -> Probe:
    """The newest probe trained on these weights or, for a fine-tuned network, its own classifier."""
    saved = _numbered(folder)
    paths = [folder / LAST, *(saved[number] for number in sorted(saved))]
    for path in reversed(paths):
        content: dict[str, Any] = checkpoint.load(path)
        if NAME in content and (probe := Probe(**content[NAME])).weights == weights:
            return probe
    others = f"; {len(saved)} were trained on other weights (another checkpoint or --network)" if saved else ""
    raise UserError(f"{folder} has no trained probe{others}; train one with: scfs linear {folder} --data FOLDER.")


def _numbered(folder: Path) -> dict[int, Path]:
    """Saved probes by number."""
    matches = ((re.fullmatch(rf"{NAME}(?:-(\d+))?\.pt", path.name), path) for path in folder.glob(f"{NAME}*.pt"))
    return {int(match[1] or 1): path for match, path in matches if match}
