"""The tool from Python, as the README shows it."""

import subprocess
import sys

import pytest
import torch
from conftest import TINY

import scfs
from scfs.errors import UserError


def test_the_lines_of_the_readme(tiny_recipe, tmp_path):
    run = scfs.pretrain(tiny_recipe, optim={"epochs": 1}, run={"folder": str(tmp_path / "run")})
    assert (run / "metrics.jsonl").is_file()
    backbone = scfs.load_backbone(str(run))
    images, local_images = torch.randn(2, 3, 32, 32), torch.randn(2, 3, 16, 16)
    assert backbone(images).shape == (2, 256)
    maps = backbone.maps(images)
    assert {name: tuple(value.shape) for name, value in maps.items()} == {
        "layer2": (2, 64, 4, 4),
        "layer3": (2, 128, 2, 2),
        "layer4": (2, 256, 1, 1),
    }
    queries, keys = backbone.maps(local_images)["layer2"], maps["layer2"]
    attention = scfs.search_attention(queries[None], keys[None])
    assert attention.shape == (1, 1, 2, 4, 4)
    assert attention.abs().max() <= 1 + 1e-6


def test_settings_may_be_dictionaries(tmp_path):
    run = scfs.pretrain(TINY, optim={"epochs": 1}, run={"folder": str(tmp_path / "run")})
    assert (run / "last.pt").is_file()
    with pytest.raises(UserError, match="Did you mean 'optim\\.epochs'"):
        scfs.pretrain(TINY, optim={"epoch": 1})


def test_importing_the_package_does_not_import_torch():
    code = "import sys, scfs, scfs.cli; sys.exit('torch' in sys.modules or 'pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
    with pytest.raises(AttributeError):
        _ = scfs.nothing_of_the_kind
