"""Files for detectron2, which is not on the package index: its names and format as its sources have them."""

import functools
import pickle
import re

import numpy as np
import pytest
import torch
import yaml
from test_export import saved

from scfs.errors import UserError
from scfs.exporting import export

NORM = ("weight", "bias", "running_mean", "running_var")


class Restricted(pickle.Unpickler):
    """Only arrays: what any version of NumPy can read, and nothing that could run code."""

    def find_class(self, module, name):
        assert (module, name) in {("numpy", "ndarray"), ("builtins", "bytearray")}, (module, name)
        return super().find_class(module, name)


def read(path):
    with path.open("rb") as file:
        return Restricted(file, encoding="latin1").load()


def with_norm(name):
    return [f"{name}.weight", *(f"{name}.norm.{part}" for part in NORM)]


def expected_names(blocks, num_convolutions, first_shortcut):
    """The names of detectron2's ResNet: a stem, then res2 to res5."""
    names = with_norm("stem.conv1")
    for stage, count in zip((2, 3, 4, 5), blocks, strict=True):
        for block in range(count):
            if block == 0 and stage >= first_shortcut:
                names += with_norm(f"res{stage}.0.shortcut")
            for convolution in range(1, num_convolutions + 1):
                names += with_norm(f"res{stage}.{block}.conv{convolution}")
    return names


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A function: the network of a randomised checkpoint, the content of its file, and what was printed."""

    @functools.cache
    def export_it(name):
        folder = tmp_path_factory.mktemp(name)
        net, done = saved(folder / "last.pt", name), export(str(folder / "last.pt"), folder / "b.pkl")
        return net, read(done.path), done

    return export_it


@pytest.mark.parametrize(
    ("name", "blocks", "num_convolutions", "first_shortcut", "count"),
    [("resnet18", (2, 2, 2, 2), 2, 3, 100), ("resnet50", (3, 4, 6, 3), 3, 2, 265)],
)
def test_the_names_are_detectron2s(name, blocks, num_convolutions, first_shortcut, count, exported):
    _, content, done = exported(name)
    assert sorted(content["model"]) == sorted(expected_names(blocks, num_convolutions, first_shortcut))
    assert len(content["model"]) == done.num_tensors == count


def ours(name):
    """detectron2's name -> timm's, by replacing parts: the other direction, written differently."""
    name = re.sub(r"^stem\.", "", name)
    name = re.sub(r"^res(\d)", lambda match: f"layer{int(match[1]) - 1}", name)
    name = re.sub(r"conv(\d)\.norm", r"bn\1", name)
    return name.replace("shortcut.norm", "downsample.1").replace("shortcut", "downsample.0")


def test_the_arrays_are_the_networks(exported):
    net, content, _ = exported("resnet50")
    state = {name: value for name, value in net.state_dict().items() if "num_batches_tracked" not in name}
    assert {ours(name) for name in content["model"]} == state.keys()
    for name, array in content["model"].items():
        assert array.dtype == np.float32
        assert array.flags.writeable  # torch.from_numpy warns otherwise
        assert torch.equal(torch.from_numpy(array), state[ours(name)])


def test_the_file_is_in_the_format_of_the_model_zoo(exported):
    """With "model" and "__author__", detectron2 does not take it for a file of Caffe2."""
    _, content, _ = exported("resnet18")
    assert content["__author__"].startswith("scfs ")
    assert content["matching_heuristics"] is True
    about = content["scfs"]
    assert (about["mean"], about["std"], about["size"]) == ("0.485,0.456,0.406", "0.229,0.224,0.225", "64")


@pytest.mark.parametrize(
    ("name", "resnets"),
    [
        ("resnet50", {"DEPTH": 50, "STRIDE_IN_1X1": False, "NORM": "SyncBN"}),
        ("resnet18", {"DEPTH": 18, "RES2_OUT_CHANNELS": 64, "STRIDE_IN_1X1": False, "NORM": "SyncBN"}),
    ],
)
def test_the_printed_configuration(name, resnets, exported):
    _, _, done = exported(name)
    first, _, rest = done.how.partition("\n")
    assert first.startswith(f'DetectionCheckpointer(model).load("{done.path}")')
    assert yaml.safe_load(rest) == {
        "MODEL": {
            "WEIGHTS": str(done.path),
            "PIXEL_MEAN": [123.675, 116.28, 103.53],
            "PIXEL_STD": [58.395, 57.12, 57.375],
            "BACKBONE": {"FREEZE_AT": 0},
            "RESNETS": resnets,
        },
        "INPUT": {"FORMAT": "RGB"},
    }


@pytest.mark.parametrize("name", ["resnet26", "test_convnext", "test_vit"])
def test_other_networks_are_refused(name, tmp_path):
    with pytest.raises(UserError, match=f"no backbone like '{name}', only plain ResNets"):
        export(f"random:{name}", tmp_path / "b.pkl")
    assert list(tmp_path.iterdir()) == []


def test_scfs_does_not_unpickle_it(exported, tmp_path):
    *_, done = exported("resnet18")
    with pytest.raises(UserError, match="not a checkpoint"):
        export(str(done.path), tmp_path / "b.safetensors")
