"""The rows of the paper's ablation tables, as changes to a recipe."""

import functools
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
    "The paper's numbers are for 100 classes of ImageNet, 200 epochs, batch 256, and ResNet-50 if no backbone is named."
)
DINO, SCFS = "DINO", "SCFS"
CONTRASTS = {DINO: "dino", SCFS: "scfs"}
VIT_BASE_WIDTH = 768  # channels of a ViT-B
# The paper's optimizers. It gives none for ViTs; theirs is DINO's.
RESNET_OPTIMIZER, VIT_OPTIMIZER = "sgd", "adamw"


@dataclass(frozen=True)
class TableRow:
    """A row of a table: its name, the settings of its runs, and the paper's k-NN and linear top-1 in per cent."""

    name: str
    config: Config
    paper: tuple[float, float] | None = None
    series: str = ""  # the line of the plot it is on
    x: int = 0  # and its position there


def modes(configs: Sequence[Config], _: Ablate) -> list[TableRow]:
    """Table "Influence of different contrast modes"; for a recipe with multilayer, another row has it."""
    [config] = _one(configs)
    _need_local_views(config, SCFS, "ROI crop")
    own = [TableRow("SCFS w ML", _changed(config, {"method.contrast": "scfs"}))] if config.method.multilayer else []
    config = _changed(config, {"method.multilayer": False})
    table: list[tuple[str, dict[str, Any], tuple[float, float] | None]] = [
        ("DINO w/o MC", {"method.contrast": "dino-no-multicrop"}, (78.1, 83.7)),
        (DINO, {"method.contrast": "dino"}, (81.1, 87.0)),
        ("DINO w ML", {"method.contrast": "dino-multilayer"}, (82.2, 87.4)),
        (SCFS, {"method.contrast": "scfs"}, (84.8, 89.2)),
        ("ROI crop", {"method.contrast": "roi-crop"}, (83.9, 88.1)),
        # The table ticks the feature term only.
        ("SCFS w/o MC", {"method.contrast": "scfs-no-multicrop", "method.data_term": False}, (79.7, 86.3)),
    ]
    return [*(TableRow(name, _changed(config, changes), paper) for name, changes, paper in table), *own]


def layers(configs: Sequence[Config], _: Ablate) -> list[TableRow]:
    """Table "Influence of different feature augmentation layer": the first search layer, the first two, all."""
    [config] = _one(configs)
    if not config.method.plan.uses_maps:
        raise UserError(
            f"Contrast '{config.method.contrast}' uses no search layers, so all rows of this table would be the same; "
            "add --method.contrast scfs."
        )
    names = list(config.backbone.layers)
    if config.backbone.layers == "auto":
        names = _architecture(config.backbone.name).layers
    matches_paper = len(names) == 3 and config.method.contrast == "scfs" and not config.method.multilayer
    paper = [(82.0, 86.1), (84.3, 87.5), (84.8, 89.2)] if matches_paper else [None] * len(names)
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
            x=count,
        )
        for name, contrast in CONTRASTS.items()
        for count in settings.locals
    ]


def backbones(configs: Sequence[Config], settings: Ablate) -> list[TableRow]:
    """Table "Experiments on other backbones": those of the recipes, or the given ones with one recipe."""
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
        for name in settings.backbones:
            _check_optimizer(config, name)
        changes = ({"backbone.name": name, "backbone.layers": "auto"} for name in settings.backbones)
        configs = [_changed(config, change) for change in changes]
    for config in configs:
        _need_local_views(config, SCFS)
    return [
        TableRow(
            f"{name}, {config.backbone.name}",
            _changed(config, {"method.contrast": contrast}),
            paper.get((config.backbone.name, name)) if _is_the_papers(config) else None,
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


def probe_blocks(backbone: str) -> int:
    """Last blocks whose class tokens a linear probe uses: one for a ViT-B or wider, four for a smaller ViT.

    This is DINO's protocol (the paper gives none); it has no effect on backbones without class tokens.
    """
    network = _architecture(backbone)
    return 1 if _is_vit(network) and network.num_features >= VIT_BASE_WIDTH else 4


@functools.cache
def _architecture(name: str) -> Backbone:
    with torch.device("meta"):
        return Backbone(name)


def _is_vit(network: Backbone) -> bool:
    return getattr(network.net, "cls_token", None) is not None


def _is_the_papers(config: Config) -> bool:
    """Whether the paper's scores may be shown next to those of a row: its terms and its optimizer."""
    optimizer = VIT_OPTIMIZER if _is_vit(_architecture(config.backbone.name)) else RESNET_OPTIMIZER
    return config.optim.name == optimizer and not config.method.multilayer


def _check_optimizer(config: Config, name: str) -> None:
    """Refuse a ViT with the SGD settings of a recipe for ResNets, and the reverse."""
    network, optimizer = _architecture(name), config.optim.name
    if _is_vit(network) == _is_vit(_architecture(config.backbone.name)):
        return
    if optimizer == (RESNET_OPTIMIZER if _is_vit(network) else VIT_OPTIMIZER):
        recipe = "imagenet100_base"
        if _is_vit(network):
            recipe = "imagenet100_vit_b" if network.num_features >= VIT_BASE_WIDTH else "imagenet100_vit_s"
        raise UserError(
            f"The recipe's optimizer, {optimizer}, is for {config.backbone.name}, not for {name}; instead of "
            f"--backbones give several recipes, such as {recipe} for this one."
        )


def _need_local_views(config: Config, *names: str) -> None:
    if config.views.num_local_views == 0:
        rows = " and ".join(f"'{name}'" for name in names)
        raise UserError(
            f"Local views are needed for {rows} of this table, and the recipe has none (views.num_local_views = 0); "
            "add --views.num_local_views 4."
        )


def _one(configs: Sequence[Config]) -> Sequence[Config]:
    if len(configs) > 1:
        raise UserError("Only table 'backbones' takes several recipes; give one.")
    return configs


def _changed(config: Config, changes: Mapping[str, Any]) -> Config:
    return check(Config, config.model_dump(), changes)
