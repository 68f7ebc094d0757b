"""Searchers of runs and weights, with sizes chosen by what the network was trained on."""

from collections.abc import Sequence
from pathlib import Path

import torch

from scfs.backbones import Loaded
from scfs.config import Config
from scfs.errors import UserError
from scfs.visualize.attention import Searcher, usable_side
from scfs.visualize.run_settings import config_of

LOCAL_FRACTION = 96 / 224  # the paper's local views, as a fraction of its global ones
SCALES = 3  # side of searched images, in sides of queries: finer maps than in training


def build_searcher(
    loaded: Loaded,
    target: str,
    *,
    others: Sequence[str] = (),
    layers: Sequence[str],
    size: int | str = "auto",
    query_size: int | str = "auto",
    device: torch.device,
) -> Searcher:
    """The searcher of a loaded backbone; sizes as set or, with auto, queries as in training and images of three times.

    others: what it is compared with. Weights alone and random weights get the sizes of the first run among them. A
    backbone that cannot take these gets what it was trained on.
    """
    config = next((found for each in (target, *others) if (found := config_of(each)) is not None), None)
    trained = loaded.evaluated_size("auto") if config is None else config.views.global_size
    query_side = _side(loaded, query_size, auto=_trained_query(config, trained))
    side = _side(loaded, size, auto=max(SCALES * query_side, trained))
    return Searcher(loaded.backbone.with_layers(layers).to(device), side=side, query_side=query_side)


def _side(loaded: Loaded, setting: int | str, *, auto: int) -> int:
    """A side as set; or what is best, or as in training if the network cannot take that."""
    if setting != "auto":
        return usable_side(loaded.backbone, int(setting))
    try:
        return usable_side(loaded.backbone, auto)
    except UserError:
        return loaded.evaluated_size("auto")


def _trained_query(config: Config | None, trained: int) -> int:
    """The side of the views that were searched for in training; without a run, in the paper's proportion."""
    if config is None:
        return round(LOCAL_FRACTION * trained)
    return config.views.local_size if config.num_local_views else config.views.global_size


def short_names(targets: Sequence[str]) -> list[str]:
    """The last parts of paths, as many as tell them apart; equal targets are numbered."""
    paths = [target if target.startswith("random:") else str(Path(target).resolve()) for target in targets]
    parts = [path.split("/") for path in paths]
    for count in range(1, max(map(len, parts)) + 1):
        names = ["/".join(each[-count:]) for each in parts]
        if len({*names}) == len({*paths}):
            break
    return [f"{name} ({i + 1})" if names.count(name) > 1 else name for i, name in enumerate(names)]
