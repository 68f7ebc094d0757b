"""The tool from Python. Everything here is also there as `scfs.NAME`, and is imported when it is first used."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from scfs.config import Config
from scfs.method.search import search_attention
from scfs.pretrain.job import pretrain
from scfs.pretrained import PretrainedBackbone, load_backbone
from scfs.recipe import check, read_toml

__all__ = ["PretrainedBackbone", "load_backbone", "pretrain_backbone", "search_attention"]


def pretrain_backbone(
    recipe: str | Path | Mapping[str, Any], settings: Mapping[str, Any] | None = None, *, resume: bool = False
) -> Path:
    """Pre-train from a recipe, a TOML file or the same as nested dictionaries; returns the run folder.

    `settings` come on top, named as on the command line: {"optim.epochs": 5}.
    """
    if isinstance(recipe, str | Path):
        name, values = Path(recipe).stem, read_toml(Path(recipe))
    else:
        name, values = "run", dict(recipe)
    return pretrain(check(Config, values, settings), name=name, resume=resume, console=Console())
