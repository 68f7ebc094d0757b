"""Files of weights that are damaged, hostile or hold something else."""

import math
import pickle
import zipfile

import pytest
import safetensors.torch
import torch
from test_weights import named
from torch import nn

from scfs.backbones import Backbone, load_backbone, load_weights
from scfs.errors import UserError
from scfs.preprocessing import Preprocessing
from scfs.weights.read import read_weights

NAME = "resnet10_half"


class Trap:
    """Unpickling it writes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def test_code_in_a_file_is_not_run(tmp_path):
    torch.save({"state_dict": named("", 2), "args": Trap(tmp_path / "trace")}, tmp_path / "w.pth")
    with pytest.raises(UserError, match=r"Python objects \(_?io\.open\)"):
        read_weights(str(tmp_path / "w.pth"))
    (tmp_path / "plain.pkl").write_bytes(pickle.dumps(Trap(tmp_path / "trace"), protocol=2))
    with pytest.raises(UserError, match=r"plain\.pkl"):
        read_weights(str(tmp_path / "plain.pkl"))
    assert not (tmp_path / "trace").exists()


def test_a_whole_network_is_refused(tmp_path):
    torch.save(nn.Linear(2, 2), tmp_path / "net.pth")
    with pytest.raises(UserError, match=r"torch.nn.modules.linear.Linear.*save the network's state_dict"):
        read_weights(str(tmp_path / "net.pth"))


@pytest.mark.parametrize("name", ["w.pth", "w.safetensors"])
@pytest.mark.parametrize("content", [b"", b"no weights", b"PK\x03\x04 cut short", b"\x80\x02", b"\xff" * 64])
def test_files_that_are_not_weights(name, content, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=r"is not a (checkpoint|safetensors).*cut short") as refusal:
        load_backbone(str(tmp_path / name))
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("name", ["w.pth", "w.safetensors"])
def test_files_that_are_cut_short(name, tmp_path):
    tensors = {"conv1.weight": torch.randn(100, 100)}
    save = safetensors.torch.save_file if name.endswith("safetensors") else torch.save
    save(tensors, tmp_path / name)
    whole = (tmp_path / name).read_bytes()
    for length in (len(whole) - 1, len(whole) // 2, 20):
        (tmp_path / name).write_bytes(whole[:length])
        with pytest.raises(UserError, match="cut short"):
            read_weights(str(tmp_path / name))


def test_flipped_bits_are_noticed(tmp_path):
    torch.save({"conv1.weight": torch.ones(1000)}, tmp_path / "w.pth")
    with zipfile.ZipFile(tmp_path / "w.pth") as archive:
        part = next(info for info in archive.infolist() if info.file_size == 4000)
    damaged = bytearray((tmp_path / "w.pth").read_bytes())
    damaged[part.header_offset + 2000] ^= 1
    (tmp_path / "w.pth").write_bytes(damaged)
    with pytest.raises(UserError, match="fails its checksum"):
        read_weights(str(tmp_path / "w.pth"))


@pytest.mark.parametrize("content", [{}, [1, 2], 3.0, {"epoch": 3}, {"model": {"a": "b"}}, {7: torch.ones(2)}])
def test_files_without_tensors(content, tmp_path):
    torch.save(content, tmp_path / "w.pth")
    with pytest.raises(UserError, match="no tensors"):
        read_weights(str(tmp_path / "w.pth"))


def test_a_file_that_contains_itself(tmp_path):
    content = {}
    content["model"] = content
    torch.save(content, tmp_path / "w.pth")
    with pytest.raises(UserError, match="no tensors"):
        read_weights(str(tmp_path / "w.pth"))


def test_values_that_are_not_finite(tmp_path):
    tensors = named("", 2)
    tensors["layer2.0.conv1.weight"][0, 0, 0, 0] = math.nan
    torch.save(tensors, tmp_path / "w.pth")
    with pytest.raises(UserError, match=r"damaged: 'layer2.0.conv1.weight'"):
        load_weights(Backbone(NAME), str(tmp_path / "w.pth"))


@pytest.mark.parametrize(
    "absurd",
    [
        {"size": "9" * 5000},
        {"size": "²"},
        {"size": "99999"},
        {"mean": "1", "std": "nan,1,1"},
        {"std": "0,0,0"},
        {"interpolation": "evil"},
        {"layers": "," * 5000},
    ],
)
def test_absurd_metadata_of_an_export_are_ignored(absurd, tmp_path):
    about = {"scfs": "0", "backbone": "resnet10_half", **absurd}
    path = tmp_path / "odd.safetensors"
    safetensors.torch.save_file(Backbone("resnet10_half").net.state_dict(), path, metadata=about)
    stored = read_weights(str(path))
    assert (stored.size, stored.layers, stored.preprocessing) == (None, None, Preprocessing())


def test_tensors_that_repeat_a_number_without_end(tmp_path):
    torch.save({"weight": torch.zeros(1).expand(2**40)}, tmp_path / "odd.pth")
    with pytest.raises(UserError, match=r"holds tensors of 4,398,046,511,104 bytes, far more than the file"):
        read_weights(str(tmp_path / "odd.pth"))


@pytest.mark.parametrize(
    "change", [{"size": 2**70}, {"size": "9"}, {"name": 3}, {"layers": [None]}, {"tensors": {"a": 1}}]
)
def test_an_absurd_record_in_a_checkpoint(change, tmp_path):
    record = {"name": "resnet10_half", "layers": ["layer2"], "size": 32, "tensors": {"a": torch.zeros(1)}, **change}
    torch.save({"scfs_checkpoint": 1, "backbones": {"teacher": record}}, tmp_path / "odd.pt")
    with pytest.raises(UserError, match="not as scfs writes it"):
        read_weights(str(tmp_path / "odd.pt"))
