"""The settings of the methods that rivals.py compares: ours as changes to a recipe, and the views of the others."""

from pathlib import Path
from typing import Any

import scfs
from scfs.config import Config
from scfs.recipe import check, read_toml
from scfs.runs.files import digest_of

VIEWS = {"global_size": 64, "local_size": 32, "local_scale": (0.05, 0.25), "blur": 0.0}
TWO_VIEWS = {**VIEWS, "num_local_views": 0, "global_scale": (0.2, 1.0)}
MULTI_CROP = {**VIEWS, "num_local_views": 4, "global_scale": (0.25, 1.0)}
RIVAL_VIEWS: dict[str, dict[str, Any]] = {
    "simclr": TWO_VIEWS,
    "byol": TWO_VIEWS,
    "vicreg": TWO_VIEWS,
    "swav": MULTI_CROP,
    "lightly-dino": MULTI_CROP,
}

# Ours by name: a recipe and changes to it.
RECIPES = Path(scfs.__file__).parent / "recipes"
FAST, PAPER = RECIPES / "cpu_imagenette.toml", RECIPES / "cpu_imagenette_paper.toml"
NO_LOCAL_VIEWS = {"views.num_local_views": 0, "views.local_size": 96, "views.local_scale": "auto"}  # the defaults
OURS: dict[str, tuple[Path, dict[str, Any]]] = {
    "scfs": (FAST, {}),
    "dino": (FAST, {"method.contrast": "dino"}),
    "dino-multilayer": (FAST, {"method.contrast": "dino-multilayer"}),
    "scfs-no-multicrop": (FAST, {"method.contrast": "scfs-no-multicrop", **NO_LOCAL_VIEWS}),
    "dino-no-multicrop": (FAST, {"method.contrast": "dino-no-multicrop", **NO_LOCAL_VIEWS}),
    "scfs-paper": (PAPER, {}),
    "dino-paper": (PAPER, {"method.contrast": "dino"}),
}


# The effect of each choice of the fast recipe: the recipe with one thing changed.
SGD = {"optim.name": "sgd", "optim.lr": 0.12, "optim.weight_decay": 5e-4}
DISTIL = {"method.objective": "dino", "method.targets": "teacher", "method.out_dim": 2048, "method.batch_norm": True}
DISTIL |= {"method.teacher_temp": 0.04, "method.teacher_temp_warmup_epochs": 0, "method.momentum": 0.99}
CHANGES: dict[str, dict[str, Any]] = {
    "sgd": SGD,
    "sgd, float32": {**SGD, "optim.precision": "float32"},
    "adamw": {"optim.name": "adamw", "optim.lr": 0.002},
    "float32": {"optim.precision": "float32"},
    "batch 128": {"optim.batch_size": 128},
    "no search": {"method.contrast": "dino"},
    "multi-layer, no search": {"method.contrast": "dino-multilayer"},
    "search, no multi-layer": {"method.multilayer": False},
    "released": {"method.multilayer": False, "method.variant": "released"},
    "search layers 2 and 3": {"backbone.layers": ("layer2", "layer3")},
    "residual search heads": {"method.search_head": "residual", "method.search_bottleneck_dim": 64},
    "search weight 0.5": {"method.search_weight": 0.5},
    "search weight 2": {"method.search_weight": 2.0},
    "temperature 0.2": {"method.info_nce_temp": 0.2},
    "positions instead of search": {"method.contrast": "roi-crop"},
    "2 local views": {"views.num_local_views": 2},
    "6 local views": {"views.num_local_views": 6},
    "local crops 0.05-0.25": {"views.local_scale": (0.05, 0.25)},
    "targets of the teacher, momentum 0.99": {"method.targets": "teacher", "method.momentum": 0.99},
    "targets of the teacher, momentum 0.9": {"method.targets": "teacher", "method.momentum": 0.9},
    "objective coding-rate": {"method.objective": "coding-rate"},
    "objective vicreg": {"method.objective": "vicreg"},
    "objective dino": DISTIL,
    "objective dino, sinkhorn": {**DISTIL, "method.centering": "sinkhorn"},
    "blur as in the paper": {"views.blur": 1.0},
    "blur in proportion to the size": {"views.blur": 64 / 224},
    "crops 0.08-1": {"views.global_scale": (0.08, 1.0)},
    "crops 0.4-1": {"views.global_scale": (0.4, 1.0)},
    "views of 48 px": {"views.global_size": 48},
    "resnet10_quarter": {"backbone.name": "resnet10_quarter"},
    "resnet18_half": {"backbone.name": "resnet18_half"},
    "resnet10": {"backbone.name": "resnet10"},
}
OURS |= {f"scfs, {name}": (FAST, changes) for name, changes in CHANGES.items()}


RIVAL_BATCH_SIZE = 256


def batch_size_of(name: str) -> int:
    return our_config(name).optim.batch_size if name in OURS else RIVAL_BATCH_SIZE


def our_config(name: str) -> Config:
    recipe, changes = OURS[name]
    return check(Config, read_toml(recipe), changes)


def settings_of(name: str) -> str:
    """A short hash of the settings of a method of ours, or of a rival's views; the rest of it is as published."""
    if name not in OURS:
        return digest_of(RIVAL_VIEWS[name])
    config = our_config(name)
    free = {"run": True, "data": True, "optim": {"epochs", "backbone_lr_scale"}}  # the last: 1 without initial weights
    return digest_of(config.model_dump(mode="json", exclude=free, exclude_defaults=True))
