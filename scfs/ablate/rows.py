"""The rows of the paper's ablation tables, as changes to a recipe."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from scfs.ablate.settings import Ablate
from scfs.backbones import Backbone
from scfs.config import Config
from scfs.errors import UserError
from scfs.recipe import check

PAPER = (
    "The paper's figures are of 100 classes of ImageNet, 200 epochs, batch 256; ResNet-50 where no backbone is named."
)
DINO, SCFS = "DINO", "SCFS"
CONTRASTS = {DINO: "dino", SCFS: "scfs"}


@dataclass(frozen=True)
class TableRow:
    """A row of a table: its name, the settings of its runs, and the paper's k-NN and linear top-1 in per cent."""

    name: str
    config: Config
    paper: tuple[float, float] | None = None
    series: str = ""  # of a plot against numbers: which line
    at: int = 0  # and where on it


def modes(configs: Sequence[Config], _: Ablate) -> list[TableRow]:
    """Table "Influence of different contrast modes"."""
    [config] = _one(configs)
    table: list[tuple[str, dict[str, Any], tuple[float, float] | None]] = [
        ("DINO w/o MC", {"method.contrast": "dino-no-multicrop"}, (78.1, 83.7)),
        (DINO, {"method.contrast": "dino"}, (81.1, 87.0)),
        ("DINO w ML", {"method.contrast": "dino-multilayer"}, (82.2, 87.4)),
        (SCFS, {"method.contrast": "scfs"}, (84.8, 89.2)),
        ("ROI crop", {"method.contrast": "roi-crop"}, (83.9, 88.1)),
        # The table ticks the feature term only.
        ("SCFS w/o MC", {"method.contrast": "scfs-no-multicrop", "method.data_term": False}, (79.7, 86.3)),
    ]
    return [TableRow(name, _changed(config, changes), paper) for name, changes, paper in table]


def layers(configs: Sequence[Config], _: Ablate) -> list[TableRow]:
    """Table "Influence of different feature augmentation layer": the first search layer, the first two, all."""
    [config] = _one(configs)
    names = list(config.backbone.layers)
    if config.backbone.layers == "auto":
        with torch.device("meta"):
            names = Backbone(config.backbone.name).layers
    paper = [(82.0, 86.1), (84.3, 87.5), (84.8, 89.2)] if len(names) == 3 else [None] * len(names)
    return [
        TableRow(" + ".join(names[:count]), _changed(config, {"backbone.layers": names[:count]}), paper[count - 1])
        for count in range(1, len(names) + 1)
    ]


def local_views(configs: Sequence[Config], settings: Ablate) -> list[TableRow]:
    """Figure "Influence of local augmentation number"; the paper gives no numbers."""
    [config] = _one(configs)
    return [
        TableRow(
            f"{name}, {count} local views",
            _changed(config, {"method.contrast": contrast, "views.num_local_views": count}),
            series=name,
            at=count,
        )
        for name, contrast in CONTRASTS.items()
        for count in settings.locals
    ]


def backbones(configs: Sequence[Config], settings: Ablate) -> list[TableRow]:
    """Table "Experiments on other backbones": those of the recipes, or the named ones with one recipe."""
    paper = {
        ("resnet50", DINO): (81.1, 87.0),
        ("resnet50", SCFS): (84.8, 89.2),
        ("resnet101", DINO): (81.0, 86.3),
        ("resnet101", SCFS): (85.1, 88.3),
        ("vit_small_patch16_224", DINO): (75.0, 80.4),
        ("vit_small_patch16_224", SCFS): (76.3, 81.0),
        ("vit_base_patch16_224", DINO): (76.2, 80.7),
        ("vit_base_patch16_224", SCFS): (77.2, 82.3),
    }
    if settings.backbones:
        [config] = _one(configs)
        changes = ({"backbone.name": name, "backbone.layers": "auto"} for name in settings.backbones)
        configs = [_changed(config, change) for change in changes]
    return [
        TableRow(
            f"{name}, {config.backbone.name}",
            _changed(config, {"method.contrast": contrast}),
            paper.get((config.backbone.name, name)),
        )
        for config in configs
        for name, contrast in CONTRASTS.items()
    ]


TABLES: Mapping[str, Callable[[Sequence[Config], Ablate], list[TableRow]]] = {
    "modes": modes,
    "layers": layers,
    "locals": local_views,
    "backbones": backbones,
}


def _one(configs: Sequence[Config]) -> Sequence[Config]:
    if len(configs) > 1:
        raise UserError("Several recipes are for the backbones' table alone; give one.")
    return configs


def _changed(config: Config, changes: Mapping[str, Any]) -> Config:
    return check(Config, config.model_dump(), changes)
