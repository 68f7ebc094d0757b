import math
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import timm
import torch
import torchvision
from conftest import REPO
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from test_weights import (
    randomised,
    small_convnext,
    small_torchvision_convnext,
    small_torchvision_vit,
    small_vit,
)

from scfs.backbones import Backbone, load_backbone
from scfs.data.views import centre_view, normalize
from scfs.errors import UserError
from scfs.exporting import export, torchvision_state
from scfs.preprocessing import IMAGENET_MEAN, IMAGENET_STD, Preprocessing, resized_side
from scfs.pretrained import load_backbone as load_pretrained
from scfs.runs import checkpoint
from scfs.weights.torchvision_names import TORCHVISION_MODELS, torchvision_names


def saved(path, name, layers=("layer2", "layer4"), size=64):
    """A checkpoint with a randomised teacher; returns the teacher's network."""
    backbone = Backbone(name, layers)
    net = randomised(backbone.net)
    method = {f"teacher.backbone.{key}": value for key, value in backbone.state_dict().items()}
    settings = {"backbone": {"name": name, "layers": list(layers)}, "views": {"global_size": size}}
    checkpoint.save(path, {"settings": settings, "method": method})
    return net


@torch.no_grad()
def test_timm_loads_it(tmp_path):
    net, out = saved(tmp_path / "last.pt", "resnet18"), tmp_path / "backbone.safetensors"
    exported = export(str(tmp_path / "last.pt"), out)
    assert f'timm.create_model("resnet18", num_classes=0, checkpoint_path="{out}", ' in exported.how
    assert exported.how in str(exported)
    plain = eval(exported.how, {"timm": timm})
    assert plain.state_dict().keys() == net.state_dict().keys()
    images = torch.randn(2, 3, 64, 64)
    assert torch.equal(plain.eval()(images), net(images))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backbone.safetensors", "last.pt"]


@torch.no_grad()
@pytest.mark.parametrize(
    ("name", "layers", "size"),
    [
        ("vit_tiny_patch16_224", ["blocks.5", "blocks.11"], 96),  # whose own mean is 0.5
        ("swin_tiny_patch4_window7_224", ["layers.3"], 64),
        ("resnet18", ["layer4"], 64),
        ("resnet18", ["layer4"], 224),
    ],
)
def test_timm_prepares_images_as_we_do(tmp_path, name, layers, size):
    net, out = saved(tmp_path / "last.pt", name, layers, size), tmp_path / "backbone.safetensors"
    plain = eval(export(str(tmp_path / "last.pt"), out).how, {"timm": timm}).eval()
    transform = timm.data.create_transform(**timm.data.resolve_model_data_config(plain), is_training=False)
    pixels = np.random.default_rng(0).integers(0, 256, (150, 201, 3), dtype=np.uint8)
    photo = Image.fromarray(pixels)
    ours = normalize(centre_view(photo, size))
    torch.testing.assert_close(transform(photo), ours, rtol=0, atol=1e-5)
    assert torch.equal(plain(ours[None]), net(ours[None]))


def test_timm_resizes_to_the_same_side():
    for size in range(8, 1000):
        assert math.floor(size / Preprocessing(size).crop_pct) == resized_side(size)
    assert Preprocessing(224).crop_pct == 0.875


def test_a_file_records_how_images_are_prepared(tmp_path):
    saved(tmp_path / "last.pt", "resnet10_half")
    out = tmp_path / "b.safetensors"
    export(str(tmp_path / "last.pt"), out)
    with safe_open(out, framework="pt") as file:
        about = file.metadata()
    assert {key: about[key] for key in ("mean", "std", "size", "crop_pct", "interpolation")} == {
        "mean": "0.485,0.456,0.406",
        "std": "0.229,0.224,0.225",
        "size": "64",
        "crop_pct": "0.875",
        "interpolation": "bicubic",
    }
    about |= {"mean": "0.5,0.5,0.25", "std": "1.0,2.0,3.0"}  # to check that they are read
    save_file(load_file(out), tmp_path / "other.safetensors", about)
    network = load_pretrained(str(tmp_path / "other.safetensors"))
    assert (network.mean, network.std, network.size) == ((0.5, 0.5, 0.25), (1.0, 2.0, 3.0), 64)
    assert (network.crop_pct, network.interpolation) == (0.875, "bicubic")


def test_files_without_preprocessing_get_the_defaults(tmp_path):
    saved(tmp_path / "last.pt", "resnet10_half")
    assert load_pretrained(str(tmp_path / "last.pt")).mean == IMAGENET_MEAN
    about = {"scfs": "0.1.0", "backbone": "resnet10_half", "layers": "layer4", "mean": "damaged"}
    save_file(Backbone("resnet10_half").net.state_dict(), tmp_path / "old.safetensors", about)
    network = load_pretrained(str(tmp_path / "old.safetensors"))
    assert (network.mean, network.std, network.size) == (IMAGENET_MEAN, IMAGENET_STD, None)


@torch.no_grad()
def test_torchvision_loads_it(tmp_path):
    net, out = saved(tmp_path / "last.pt", "resnet18"), tmp_path / "backbone.pth"
    printed = str(export(str(tmp_path / "last.pt"), out))
    assert "torchvision.models.resnet18()" in printed
    assert "strict=False" in printed
    assert "shorter side to 73 pixels (bicubic), centre crop of 64" in printed
    assert "mean (0.485, 0.456, 0.406), standard deviation (0.229, 0.224, 0.225)" in printed
    names = {"torch": torch, "torchvision": torchvision}
    exec(textwrap.dedent("  " + printed.partition("load them with\n  ")[2].partition("\nImages")[0]), names)
    images = torch.randn(2, 3, 64, 64)
    torch.testing.assert_close(names["model"].eval()(images), net(images))
    missing = torchvision.models.resnet18().load_state_dict(torch.load(out), strict=False)
    assert (missing.missing_keys, missing.unexpected_keys) == (["fc.weight", "fc.bias"], [])
    assert load_backbone(str(out)).backbone.name == "resnet18"


@torch.no_grad()
@pytest.mark.parametrize(
    ("ours", "theirs"), [(small_vit, small_torchvision_vit), (small_convnext, small_torchvision_convnext)]
)
def test_transformers_and_convnexts_for_torchvision(ours, theirs):
    ours, theirs = randomised(ours(), seed=5), theirs()
    theirs.load_state_dict(torchvision_state(ours))
    images = torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(theirs(images), ours(images))


def test_a_vit_for_torchvision_has_the_size_of_its_views(tmp_path):
    """torchvision builds it for one size of images, and compares shapes when it loads weights."""
    saved(tmp_path / "last.pt", "vit_base_patch32_224", ("blocks.11",))
    printed = str(export(str(tmp_path / "last.pt"), tmp_path / "backbone.pth"))
    assert "torchvision.models.vit_b_32(image_size=64)" in printed
    with torch.device("meta"):
        theirs = torchvision.models.vit_b_32(image_size=64)
    state = torch.load(tmp_path / "backbone.pth")
    known = {name: value.shape for name, value in theirs.state_dict().items() if not name.startswith("heads.")}
    assert {name: value.shape for name, value in state.items()} == known


@pytest.mark.parametrize(("name", "model"), TORCHVISION_MODELS.items())
def test_torchvision_has_those_models(name, model):
    with torch.device("meta"):
        ours = torchvision_state(timm.create_model(name, num_classes=0))
        theirs = torchvision.models.get_model(model).state_dict()
    head = {key for key in theirs if key.startswith(("fc.", "heads.", "classifier.2."))}
    assert {key: value.shape for key, value in ours.items()} == {
        key: value.shape for key, value in theirs.items() if key not in head
    }


def test_networks_that_torchvision_does_not_have():
    assert torchvision_names(timm.create_model("mobilenetv3_small_050").state_dict()) is None
    assert torchvision_names(small_vit(init_values=0.1).state_dict()) is None


@torch.no_grad()
def test_the_reduced_network_is_loaded_back(tmp_path):
    net, out = saved(tmp_path / "last.pt", "resnet10_half"), tmp_path / "backbone.safetensors"
    assert f'scfs.load_backbone("{out}")' in str(export(str(tmp_path / "last.pt"), out))
    loaded = load_backbone(str(out))
    assert (loaded.backbone.name, loaded.backbone.layers, loaded.size) == ("resnet10_half", ["layer2", "layer4"], 64)
    for key, value in loaded.backbone.net.state_dict().items():
        assert torch.equal(value, net.state_dict()[key])


@pytest.mark.parametrize(
    ("target", "out", "reason"),
    [
        ("random:resnet10_half", "b.pth", "torchvision has no model like 'resnet10_half'"),
        ("random:resnet10_half", "b.tar", "name it .safetensors"),
        ("random:resnet10_half", "nowhere/b.safetensors", "Cannot write .*No such file or directory"),
        ("random:resnet5000", "b.safetensors", "timm has no model"),
        ("nowhere", "b.safetensors", "Nothing at nowhere"),
    ],
)
def test_export_refuses(target, out, reason, tmp_path):
    with pytest.raises(UserError, match=reason):
        export(target, tmp_path / out)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["b.safetensors", "b.pth"])
def test_nothing_is_overwritten(name, tmp_path):
    (tmp_path / name).write_text("mine")
    with pytest.raises(UserError, match="is not overwritten"):
        export("random:resnet18", tmp_path / name)
    assert (tmp_path / name).read_text() == "mine"


def test_the_command(scfs, tmp_path):
    out = tmp_path / "b.safetensors"
    code, printed, _ = scfs("export", "random:resnet10_half", out)
    assert (code, out.exists()) == (0, True)
    assert "72 tensors under timm's names" in printed
    assert scfs("export", "random:resnet10_half", out)[0] == 2


def test_a_write_that_fails_leaves_nothing(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("safetensors.torch.save", full)
    with pytest.raises(UserError, match="No space left on device"):
        export("random:resnet10_half", tmp_path / "b.safetensors")
    assert list(tmp_path.iterdir()) == []


def test_a_program_needs_only_torch(scfs, trained, tmp_path):
    """Of a network that neither timm nor torchvision has, for any number of images, with the lines of the page."""
    code, out, err = scfs("export", trained, tmp_path / "backbone.pt2")
    assert code == 0, err
    assert "torch.export.load(" in out
    images = torch.randn(3, 3, 32, 32)
    torch.save(images, tmp_path / "images.pt")
    page = (REPO / "docs" / "export.md").read_text(encoding="utf-8")
    start = page.index("    import json, torch\n")
    script = [
        "import sys, torch",
        'images = torch.load("images.pt")',
        *(line.strip() for line in page[start : page.index("\n\n", start)].splitlines()),
        'torch.save(features.detach(), "features.pt")',
        'assert not {"scfs", "timm"} & {*sys.modules}',
    ]
    subprocess.run([sys.executable, "-c", "\n".join(script)], check=True, cwd=tmp_path)
    with torch.no_grad():
        expected = load_backbone(str(trained)).backbone.eval()(images)[0]
    torch.testing.assert_close(torch.load(tmp_path / "features.pt"), expected)
