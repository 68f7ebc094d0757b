from collections.abc import Sequence
from pathlib import Path

import torch

from scfs.backbones import Backbone, Loaded
from scfs.config import Config
from scfs.errors import UserError
from scfs.recipe import check, read_toml
from scfs.runs.layout import SETTINGS
from scfs.runs.results import run_of
from scfs.visualize.attention import Searcher, usable_side

ENLARGED, MOST = 3, 448  # times the size of training, for finer maps, and pixels at most


def build_searcher(
    loaded: Loaded,
    target: str,
    *,
    layers: Sequence[str],
    size: int | str = "auto",
    query_size: int | str = "auto",
    device: torch.device,
) -> Searcher:
    """The searcher of a loaded backbone, with checked sizes; auto: queries as in training, images three times as large.

    Images have at most 448 pixels a side unless training had more. A backbone that cannot take larger images gets what
    it was trained on.
    """
    backbone, trained = loaded.backbone.with_layers(layers), loaded.evaluated_size("auto")
    query_side = _local_size(target) or trained if query_size == "auto" else int(query_size)
    return Searcher(
        backbone.to(device),
        side=_enlarged(backbone, trained) if size == "auto" else usable_side(backbone, int(size)),
        query_side=usable_side(backbone, query_side),
    )


def _enlarged(backbone: Backbone, trained: int) -> int:
    try:
        return usable_side(backbone, max(trained, min(ENLARGED * trained, MOST)))
    except UserError:
        return usable_side(backbone, trained)


def _local_size(target: str) -> int:
    """The side of the local views of a pre-training run; 0 if it has none, or for other weights."""
    run = run_of(target)
    values = {} if run is None else read_toml(run / SETTINGS)
    config = check(Config, values) if "views" in values else None
    return config.views.local_size if config is not None and config.num_local_views else 0


def title_of(target: str) -> str:
    """A short name of a run or of weights."""
    run = run_of(target)
    return target if run is None and target.startswith("random:") else (run or Path(target)).name
