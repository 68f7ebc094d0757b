import itertools

import onnx
import onnxruntime
import pytest
import torch
from test_export import saved
from test_export_docs import blocks, check_metadata
from torch import nn

import scfs.exporting.for_onnx as for_onnx
from scfs.backbones import load_backbone
from scfs.errors import UserError
from scfs.exporting import export
from scfs.exporting.difference import relative_difference


def session(path):
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


@pytest.fixture(scope="module")
def resnet(tmp_path_factory):
    """The folder of a checkpoint and a program, and what was exported."""
    folder = tmp_path_factory.mktemp("resnet")
    saved(folder / "last.pt", "resnet10_half")
    return folder, export(str(folder / "last.pt"), folder / "backbone.onnx")


@torch.no_grad()
def check_outputs(folder, layers, sizes):
    program, backbone = session(folder / "backbone.onnx"), load_backbone(str(folder / "last.pt")).backbone.eval()
    assert [each.name for each in program.get_outputs()] == ["pooled", *layers]
    assert [each.shape for each in program.get_inputs()] == [["batch", 3, "height", "width"]]
    for batch, (height, width) in itertools.product((1, 3), sizes):
        images = torch.randn(batch, 3, height, width)
        pooled, maps = backbone(images)
        for ours, theirs in zip((pooled, *maps), program.run(None, {"images": images.numpy()}), strict=True):
            assert relative_difference(ours, torch.from_numpy(theirs)) < 1e-4


def test_it_computes_the_same_for_other_sizes_and_numbers(resnet):
    folder, exported = resnet
    assert "any size" in str(exported)
    check_outputs(folder, ["layer2", "layer4"], [(64, 64), (50, 96)])


def test_so_does_a_vit_also_at_the_size_of_its_grid(tmp_path):
    layers = ["blocks.2", "blocks.5"]
    saved(tmp_path / "last.pt", "test_vit", layers, 160)
    assert "any size" in str(export(str(tmp_path / "last.pt"), tmp_path / "backbone.onnx"))
    check_outputs(tmp_path, layers, [(160, 160), (48, 80)])


def test_the_printed_code_and_that_of_the_page(resnet, monkeypatch):
    folder, exported = resnet
    names = {"onnxruntime": onnxruntime, "images": torch.randn(2, 3, 64, 64).numpy()}
    assert [each.shape for each in eval(exported.how, names)] == [(2, 256), (2, 64, 8, 8), (2, 256, 2, 2)]
    monkeypatch.chdir(folder)
    names = {"images": torch.randn(2, 3, 64, 64)}
    exec(blocks("onnx")[0], names)
    assert (names["features"].shape, names["names"]) == ((2, 256), ["pooled", "layer2", "layer4"])
    check_metadata(names["about"], "resnet10_half")


def test_no_paths_of_this_machine_are_written(resnet):
    assert b".py" not in (resnet[0] / "backbone.onnx").read_bytes()


def small(monkeypatch, trace):
    monkeypatch.setattr(for_onnx, "_trace", trace)
    monkeypatch.setattr(for_onnx, "_check", lambda *_: None)


def test_a_network_of_one_size_is_traced_at_it(monkeypatch):
    traced = []
    small(monkeypatch, lambda _, shape, dynamic: traced.append((shape, dynamic)))
    monkeypatch.setattr(for_onnx, "_takes", lambda _, size: size == 64)
    backbone = load_backbone("random:resnet10_half").backbone
    assert for_onnx._program(backbone, 64)[1] == (
        "It takes any number of images, of 64 x 64 only: at other sizes, the network fails, too."
    )
    assert traced == [((2, 64, 64), {0: "batch"})]


def test_which_sizes_a_network_takes():
    backbone = load_backbone("random:test_vit").backbone
    assert [for_onnx._takes(backbone, size) for size in (50, 64)] == [False, True]


def test_so_is_one_that_cannot_be_traced_otherwise(monkeypatch):
    def trace(_, __, dynamic):
        if 2 in dynamic:
            raise for_onnx.Untraceable("it cannot be traced (no)")

    small(monkeypatch, trace)
    backbone = load_backbone("random:resnet10_half").backbone
    assert "of 64 x 64 only: at other sizes, it cannot be traced (no)." in for_onnx._program(backbone, 64)[1]


def test_one_that_cannot_be_traced_at_all_is_refused(tmp_path, monkeypatch):
    def fails(*_, **__):
        raise RuntimeError("no rule for this\nand more")

    monkeypatch.setattr(torch.onnx, "export", fails)
    with pytest.raises(
        UserError, match=r"'resnet10_half' cannot be .* it cannot be traced \(no rule for this\); export"
    ):
        export("random:resnet10_half", tmp_path / "backbone.onnx")
    assert list(tmp_path.iterdir()) == []


def test_a_program_that_differs_is_refused(resnet):
    """One of a network whose weights have changed since it was traced, or of another network."""
    folder, _ = resnet
    program, backbone = onnx.load(folder / "backbone.onnx"), load_backbone(str(folder / "last.pt")).backbone.eval()
    for_onnx._check(program, backbone, [(1, 64, 64), (3, 64, 96)])
    nn.init.normal_(backbone.net.layer4[0].conv2.weight)
    with pytest.raises(for_onnx.Untraceable, match=r"onnxruntime's pooled differs by .* at 64 x 64"):
        for_onnx._check(program, backbone, [(1, 64, 64)])
    with pytest.raises(for_onnx.Untraceable, match="images of 50 x 64 fail"):
        for_onnx._check(program, load_backbone("random:test_vit").backbone, [(1, 50, 64)])
