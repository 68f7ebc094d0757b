import errno
from pathlib import Path

import pytest
import torch

from scfs.errors import UserError
from scfs.runs import checkpoint

CONTENT = {"step": 3, "settings": {"name": "x", "list": [1, 2]}, "weights": {"w": torch.arange(5000.0)}}


def test_round_trip(tmp_path):
    path = tmp_path / "last.pt"
    checkpoint.save(path, CONTENT)
    loaded = checkpoint.load(path)
    assert loaded["step"] == 3
    assert loaded["settings"] == CONTENT["settings"]
    assert torch.equal(loaded["weights"]["w"], CONTENT["weights"]["w"])
    assert [p.name for p in tmp_path.iterdir()] == ["last.pt"]


def test_a_flipped_bit_is_noticed(tmp_path):
    path = tmp_path / "last.pt"
    checkpoint.save(path, CONTENT)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1  # in the weights
    path.write_bytes(content)
    torch.load(path, weights_only=True)  # torch does not notice
    with pytest.raises(UserError, match="damaged"):
        checkpoint.load(path)


def test_a_file_cut_short_is_noticed(tmp_path):
    path = tmp_path / "last.pt"
    checkpoint.save(path, CONTENT)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(UserError, match="cut short"):
        checkpoint.load(path)


def test_only_plain_types_are_loaded(tmp_path):
    torch.save({"scfs_checkpoint": 1, "path": Path("x")}, tmp_path / "last.pt")
    with pytest.raises(UserError, match="not a checkpoint"):
        checkpoint.load(tmp_path / "last.pt")


@pytest.mark.parametrize(
    "error",
    [OSError(errno.ENOSPC, "No space left on device"), RuntimeError("PytorchStreamWriter failed writing file data/0")],
)
def test_a_full_disk_leaves_the_previous_checkpoint(tmp_path, monkeypatch, error):
    path = tmp_path / "last.pt"
    checkpoint.save(path, CONTENT)

    def fail(_, file):
        file.write(b"half")
        raise error

    monkeypatch.setattr(torch, "save", fail)
    reason = "No space left" if isinstance(error, OSError) else "not all of it could be written"
    with pytest.raises(UserError, match=rf"Cannot write checkpoint .*{reason}.* MB free"):
        checkpoint.save(path, {"step": 4})
    assert checkpoint.load(path)["step"] == 3
    assert [p.name for p in tmp_path.iterdir()] == ["last.pt"]


def test_missing_checkpoint(tmp_path):
    with pytest.raises(UserError, match="No checkpoint"):
        checkpoint.load(tmp_path / "none.pt")


def test_a_removed_run_folder_is_a_user_error(tmp_path):
    with pytest.raises(UserError, match="Cannot write checkpoint"):
        checkpoint.save(tmp_path / "gone" / "run" / "last.pt", {"step": 1})
