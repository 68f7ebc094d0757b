"""Every recipe states its cost and result, has the settings it names, builds, and takes a step."""

import functools
import math
import re
from pathlib import Path
from typing import get_args

import pytest
import torch
from conftest import RECIPES as FOLDER
from conftest import REPO, read_flags

from scfs.config import Config
from scfs.method.modes import Contrast
from scfs.method.scfs import SCFS
from scfs.pretraining.auto import resolve
from scfs.pretraining.build import build_method
from scfs.recipe import check, read_toml, setting_names
from scfs.recipes.catalogue import FIELDS, read_header, recipe_names
from scfs.runs.layout import read_metrics

RECIPES = sorted(FOLDER.glob("*.toml"))
IMAGENET = 1_281_167

# The runs of the paper: contrast, backbone, batch, epochs, peak learning rate.
PAPER = {
    "imagenet_r50_200": ("scfs", "resnet50", 256, 200, 0.1),
    "imagenet_r50_800": ("scfs", "resnet50", 1024, 800, 0.4),
    "imagenet_dino_r50_200": ("dino", "resnet50", 256, 200, 0.1),
    "imagenet100_base": ("scfs", "resnet50", 256, 200, 0.1),
    "imagenet100_r101": ("scfs", "resnet101", 256, 200, 0.1),
    "imagenet100_vit_s": ("scfs", "vit_small_patch16_224", 256, 200, 5e-4),
    "imagenet100_vit_b": ("scfs", "vit_base_patch16_224", 256, 200, 5e-4),
    "coco_scfs_r50": ("scfs", "resnet50", 512, 500, 0.2),
    "coco_dino_r50": ("dino", "resnet50", 512, 500, 0.2),
}
# One step of one batch; contrast, variant, optimizer and schedules stay the recipe's.
SMALL = {
    **{"data.source": "scenes:4,4", "data.classes": "", "data.workers": 0},
    **{"method.out_dim": 32, "method.hidden_dim": 32, "method.bottleneck_dim": 16},
    **{"method.search_out_dim": 16, "method.search_hidden_dim": 32, "method.search_bottleneck_dim": 8},
    **{"views.global_size": 32, "views.local_size": 16, "views.num_local_views": 2},
    **{"optim.epochs": 1, "optim.batch_size": 4, "optim.warmup_epochs": 0, "optim.final_lr": 0},
    **{"run.log_every_steps": 1, "run.knn_every_epochs": 0, "run.device": "cpu", "run.threads": 1},
}
# Smaller networks, which take less time to build.
SMALL_BACKBONES = {
    **{"resnet50": "resnet10_half", "resnet101": "resnet10_half"},
    **{"vit_small_patch16_224": "vit_tiny_patch16_224", "vit_base_patch16_224": "vit_tiny_patch16_224"},
}

each_recipe = pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)


def load(path: Path) -> Config:
    return check(Config, read_toml(path))


def commands_of(path: Path) -> list[list[str]]:
    """The words after `pretrain` of each command of the header; a line of flags continues the previous command."""
    commands: list[list[str]] = []
    for line in read_header(path).fields["command"]:
        _, pretrain, rest = line.partition("scfs pretrain ")
        if pretrain:
            commands.append(rest.split())
        elif line.startswith("--"):
            commands[-1] += line.split()
    return commands


def test_the_recipes_of_the_paper_are_there():
    assert {path.stem for path in RECIPES} >= {*PAPER, "quickstart", "own_photos", "cpu_imagenette"}


@each_recipe
def test_header(path):
    fields = read_header(path).fields
    assert tuple(fields) == FIELDS
    for target, *flags in commands_of(path):
        assert target == path.stem
        check(Config, read_toml(path), read_flags(flags))
    assert commands_of(path)


@each_recipe
def test_every_setting_in_the_text_exists(path):
    text = path.read_text(encoding="utf-8")
    assert {*re.findall(r"--([a-z]+\.[a-z_]+)", text)} <= {*setting_names(Config)}
    assert all(len(line) <= 120 for line in text.splitlines())


@pytest.mark.parametrize("name", ["settings.md", "gpus.md", "slurm.sh"])
def test_every_setting_and_recipe_of_the_documentation_exists(name):
    text = (REPO / "docs" / name).read_text(encoding="utf-8")
    settings = re.findall(r"(?:--|`)((?:data|backbone|method|views|optim|run)\.[a-z_]+)\b", text)
    assert settings
    assert {*settings} <= {*setting_names(Config)}
    named = re.findall(r"scfs pretrain ([a-z]\w+)", text)
    assert {*named} - {"runs", "photos"} <= {*recipe_names("pretrain")}  # folders may be given too


@pytest.mark.parametrize("name", PAPER)
def test_settings_of_the_paper(name):
    path = FOLDER / f"{name}.toml"
    config = load(path)
    found = (config.method.contrast, config.backbone.name, config.optim.batch_size, config.optim.epochs)
    assert (*found, config.optim.peak_lr) == pytest.approx(PAPER[name])
    assert config.method == Config().method.model_copy(update={"contrast": PAPER[name][0]})
    assert config.views == Config().views
    fields = {field: " ".join(lines) for field, lines in read_header(path).fields.items()}
    assert "torchrun" in fields["command"]
    assert "not run by us" in fields["hardware"]
    assert "(the paper's)" in fields["result"]
    assert ("(the paper's)" in fields["time"]) != ("calculated" in fields["time"])


@pytest.mark.parametrize("name", ["imagenet100_vit_s", "imagenet100_vit_b"])
def test_vits_have_dinos_settings(name):
    config = load(FOLDER / f"{name}.toml")
    assert (config.optim.name, config.backbone.drop_path) == ("adamw", 0.1)
    assert (config.optim.weight_decay, config.optim.final_weight_decay) == (0.04, 0.4)


def test_the_ablations_are_flags():
    path = FOLDER / "imagenet100_base.toml"
    lines = re.findall(r"^#   (--\S+(?: \S+)*)", path.read_text(encoding="utf-8"), re.MULTILINE)
    found = [check(Config, read_toml(path), read_flags(line.split())) for line in lines]
    assert {config.method.contrast for config in found} == {*get_args(Contrast)}
    assert {("layer2",), ("layer2", "layer3")} < {config.backbone.layers for config in found}
    assert all(config != load(path) for config in found)


@functools.cache
def build_on_meta(config: Config) -> SCFS:
    """The method at its own size, and a pass of both sizes of views, without data; once per distinct configuration."""
    with torch.device("meta"):
        method = build_method(config)
        backbone = method.student.backbone
        for size in (config.views.global_size, config.views.local_size):
            pooled, maps = backbone(torch.empty(2, 3, size, size))
            assert [pooled.shape[1], *(each.shape[1] for each in maps)] == [backbone.num_features, *backbone.channels]
    return method


@each_recipe
def test_builds_at_its_own_size(path):
    config, _ = resolve(load(path), IMAGENET, torch.device("cpu"))
    method = build_on_meta(Config(backbone=config.backbone, method=config.method, views=config.views))
    assert method.plan == config.method.plan
    student = method.student
    assert student.backbone.name == config.backbone.name
    assert config.backbone.layers in ("auto", tuple(student.backbone.layers))
    is_dino = config.method.objective == "dino"
    assert student.head.out_dim == (config.method.out_dim if is_dino else config.method.bottleneck_dim)
    assert len(student.search_heads) == (3 if config.method.plan.uses_maps else 0)


@each_recipe
def test_takes_a_step(path, scfs, tmp_path):
    config, run = load(path), tmp_path / "run"
    name = SMALL_BACKBONES.get(config.backbone.name, config.backbone.name)
    flags = {**SMALL, "backbone.name": name, "run.folder": run}
    if config.method.objective != "dino":
        del flags["method.out_dim"]
    if not config.method.plan.local_views:
        del flags["views.local_size"], flags["views.num_local_views"]
    code, _, err = scfs("pretrain", path, *(word for flag, value in flags.items() for word in (f"--{flag}", value)))
    assert code == 0, err
    (row,) = read_metrics(run)
    layers = ("blocks.5", "blocks.8", "blocks.11") if name.startswith("vit") else ("layer2", "layer3", "layer4")
    losses = {"loss", "loss/view", *(f"loss/search/{layer}" for layer in layers if "scfs" in config.method.contrast)}
    assert {key for key in row if key.startswith("loss")} >= losses
    assert all(math.isfinite(value) for value in row.values())
    assert row["lr"] > 0
    assert row["weight_decay"] == pytest.approx(config.optim.weight_decay)
    done = read_toml(run / "settings.toml")
    assert done["method"]["contrast"] == config.method.contrast
    assert done["method"]["variant"] == config.method.variant
    assert done["optim"]["name"] == config.optim.name
