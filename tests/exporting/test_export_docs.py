"""The code blocks of docs/export.md, on files of one small checkpoint; and torch.hub on a clone."""

import ast
import json
import re
import shutil
import subprocess
import sys

import pytest
import torch
import yaml
from conftest import REPO
from test_export import saved

from scfs.exporting import export
from scfs.pretrained import load_backbone

OUT = {
    "safetensors": "backbone.safetensors",
    "torchvision": "backbone.pth",
    "torch": "backbone.pt2",
    "transformers": "backbone_hf",
}


def blocks(section):
    """The code blocks below a heading."""
    text = (REPO / "docs" / "export.md").read_text(encoding="utf-8")
    [body] = re.findall(rf"^## {section}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return [
        re.sub(r"^    ", "", block, flags=re.MULTILINE) for block in re.findall(r"((?:^    .*\n)+)", body, re.MULTILINE)
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The exports of a ResNet-18 and the folder of a ViT."""
    folder = tmp_path_factory.mktemp("exports")
    saved(folder / "last.pt", "resnet18", size=64)
    for to, name in OUT.items():
        export(str(folder / "last.pt"), folder / name, to=to)
    saved(folder / "vit.pt", "test_vit", ["blocks.5"], 64)
    export(str(folder / "vit.pt"), folder / "vit_hf", to="transformers")
    return folder


@torch.no_grad()
@pytest.mark.parametrize("section", ["safetensors and timm", "torchvision", "torch", "transformers"])
def test_the_code_of_the_page(section, folder, monkeypatch):
    monkeypatch.chdir(folder)
    names = {"images": torch.randn(2, 3, 64, 64)}
    for block in blocks(section):
        exec(block, names)
        assert names["features"].shape == ((2, 64) if "vit_hf" in block else (2, 512))
    if section == "torch":
        check_metadata(names["about"])
    assert section != "safetensors and timm" or list(names["maps"]) == ["layer2", "layer4"]


def check_metadata(about, backbone="resnet18"):
    """What a file of `saved` records."""
    assert (about["backbone"], about["layers"], about["size"]) == (backbone, "layer2,layer4", "64")
    assert (about["mean"], about["std"]) == ("0.485,0.456,0.406", "0.229,0.224,0.225")


def test_the_configuration_of_the_page_is_the_printed_one(tmp_path):
    exported = export("random:resnet50", tmp_path / "backbone.pkl")
    [block] = blocks("detectron2")
    printed = exported.how.partition("\n")[2].replace(str(exported.path), "backbone.pkl")
    assert yaml.safe_load(block) == yaml.safe_load(printed)


def test_torch_hub_loads_from_a_clone(folder, tmp_path):
    """In a process of its own: the clone's scfs is used, and the listed packages are all that it needs."""
    clone = tmp_path / "clone"
    shutil.copytree(REPO / "scfs", clone / "scfs", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(REPO / "hubconf.py", clone)
    code = blocks("torch.hub")[0].replace("path/to/clone", str(clone)).replace("runs/own_photos", "last.pt")
    script = f"""
import json, sys, torch
images = torch.ones(2, 3, 64, 64)
{code}
files = [module.__file__ for name, module in sys.modules.items() if name.split(".")[0] == "scfs"]
torch.save(features.detach(), "hub.pt")
print(json.dumps([files, backbone.size]))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr
    files, size = json.loads(done.stdout)
    assert size == 64
    assert all(file.startswith(str(clone)) for file in files)
    assert imported(files) == {*dependencies()}
    with torch.no_grad():
        expected = load_backbone(folder / "last.pt")(torch.ones(2, 3, 64, 64))
    torch.testing.assert_close(torch.load(folder / "hub.pt"), expected)


def dependencies():
    [value] = [
        node.value
        for node in ast.parse((REPO / "hubconf.py").read_text(encoding="utf-8")).body
        if isinstance(node, ast.Assign) and node.targets[0].id == "dependencies"
    ]
    return ast.literal_eval(value)


def imported(files):
    """Packages that files import, without scfs and the standard library."""
    found = set()
    for file in files:
        with open(file, encoding="utf-8") as source:  # noqa: PTH123
            for node in ast.walk(ast.parse(source.read())):
                if isinstance(node, ast.Import):
                    found |= {alias.name.split(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module:
                    found.add(node.module.split(".")[0])
    return found - {"scfs"} - sys.stdlib_module_names
