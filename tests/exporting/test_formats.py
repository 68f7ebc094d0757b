"""The table of formats: choosing one, refusing the others, and what every file records."""

import typing
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from test_export import saved

from scfs import extras
from scfs.errors import UserError
from scfs.evaluate.settings import Export
from scfs.exporting import export
from scfs.exporting.formats import FORMATS, choose_format
from scfs.pretrained import load_backbone
from scfs.runs.files import write_new_folder
from scfs.weights.read import read_weights


def test_the_setting_has_the_formats_of_the_table(scfs):
    assert typing.get_args(Export.model_fields["to"].annotation) == ("auto", *FORMATS)
    code, printed, _ = scfs("help", "export")
    assert code == 0
    assert "--to {auto,timm,torchvision,safetensors,torch,detectron2,onnx,transformers}" in printed


@pytest.mark.parametrize(
    ("to", "out", "expected"),
    [
        ("auto", "b.safetensors", "safetensors"),
        ("auto", "b.pth", "torchvision"),
        ("auto", "b.pt2", "torch"),
        ("auto", "b.pkl", "detectron2"),
        ("auto", "b.onnx", "onnx"),
        ("timm", "b.safetensors", "timm"),
        ("transformers", "folder", "transformers"),
        ("transformers", "vit.v1", "transformers"),
    ],
)
def test_the_format_is_given_or_that_of_the_suffix(to, out, expected):
    assert choose_format(to, Path(out)) == expected


@pytest.mark.parametrize(
    ("to", "out", "reason"),
    [
        ("auto", "folder", "Cannot export to .*folder; name it .safetensors .*or add --to transformers"),
        ("auto", "b.tflite", "Cannot export to .*b.tflite"),
        ("caffe", "b.pkl", "no export format 'caffe'; choose one of timm, torchvision, .*, onnx, transformers"),
        ("onnx", "b.pth", r"--to onnx writes a \.onnx file, not .*b\.pth"),
        ("timm", "b.pth", r"--to timm writes a \.safetensors file"),
        ("torchvision", "b", r"--to torchvision writes a \.pth file"),
        ("transformers", "b.onnx", r"--to transformers writes a folder, not .*b\.onnx"),
        ("timm", "b.safetensors", "timm has no model 'resnet10_half'; export with --to safetensors"),
        ("detectron2", "b.pkl", "no backbone like 'resnet10_half', only plain ResNets .resnet18, .*resnet50"),
    ],
)
def test_export_refuses(to, out, reason, tmp_path):
    with pytest.raises(UserError, match=reason):
        export("random:resnet10_half", tmp_path / out, to=to)
    assert list(tmp_path.iterdir()) == []


def test_the_command_refuses_an_unknown_format(scfs, tmp_path):
    code, _, err = scfs("export", "random:resnet10_half", tmp_path / "b.pkl", "--to", "caffe")
    assert code == 2
    assert "'to' cannot be 'caffe'" in err
    assert all(f"'{name}'" in err for name in FORMATS)


@pytest.mark.parametrize("out", ["b.onnx", "b.pkl", "folder"])
def test_nothing_is_overwritten(out, tmp_path):
    path = tmp_path / out
    path.mkdir()
    (path / "mine").touch()
    with pytest.raises(UserError, match="is not overwritten"):
        export("random:resnet18", path, to="auto" if path.suffix else "transformers")
    assert [each.name for each in tmp_path.rglob("*")] == [out, "mine"]


@pytest.mark.parametrize(
    ("out", "to", "reason"),
    [
        ("b.onnx", "auto", r"Export to onnx needs onnxruntime: pip install 'scfs\[onnx\]'"),
        ("folder", "transformers", r"needs transformers: pip install 'scfs\[transformers\]'"),
    ],
)
def test_a_missing_package_is_named(out, to, reason, tmp_path, monkeypatch):
    absent = ("onnxruntime", "transformers")
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name in absent else object())
    with pytest.raises(UserError, match=reason):
        export("random:resnet18", tmp_path / out, to=to)


@torch.no_grad()
def test_timm_and_safetensors_write_the_same_file(tmp_path):
    saved(tmp_path / "last.pt", "resnet18")
    for to in ("timm", "safetensors"):
        export(str(tmp_path / "last.pt"), tmp_path / f"{to}.safetensors", to=to)
    ours, theirs = ((tmp_path / f"{to}.safetensors") for to in ("timm", "safetensors"))
    with safe_open(ours, "pt") as one, safe_open(theirs, "pt") as other:
        assert one.metadata() == other.metadata()
        assert all(torch.equal(one.get_tensor(name), other.get_tensor(name)) for name in other.keys())  # noqa: SIM118


@torch.no_grad()
def test_a_file_for_torchvision_records_the_backbone(tmp_path):
    """Beside the tensors, where load_state_dict does not look; scfs reads it."""
    net = saved(tmp_path / "last.pt", "resnet18")
    export(str(tmp_path / "last.pt"), tmp_path / "b.pth")
    about = torch.load(tmp_path / "b.pth", weights_only=True)._metadata["scfs"]
    assert (about["mean"], about["std"], about["size"]) == ("0.485,0.456,0.406", "0.229,0.224,0.225", "64")
    network = load_backbone(tmp_path / "b.pth")
    assert (network.name, network.layers, network.size) == ("resnet18", ["layer2", "layer4"], 64)
    images = torch.randn(2, 3, 64, 64)
    assert torch.equal(network(images), net(images))


def test_damaged_records_are_ignored(tmp_path):
    saved(tmp_path / "last.pt", "resnet18")
    export(str(tmp_path / "last.pt"), tmp_path / "b.pth")
    state = torch.load(tmp_path / "b.pth")
    for number, damaged in enumerate((None, {"scfs": 3}, {"scfs": {"scfs": "0", "size": 3}})):
        state._metadata = damaged
        torch.save(state, tmp_path / f"{number}.pth")
        stored = read_weights(str(tmp_path / f"{number}.pth"))
        assert (stored.name, stored.size, len(stored.tensors)) == (None, None, 120)


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), UserError("no")])
def test_a_folder_is_written_completely_or_not_at_all(error, tmp_path):
    def write(folder):
        (folder / "half").touch()
        raise error

    with pytest.raises(UserError):
        write_new_folder(tmp_path / "out", write)
    assert list(tmp_path.iterdir()) == []
    write_new_folder(tmp_path / "out", lambda folder: (folder / "all").write_text("x"))
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "all"]
