import errno
import hashlib
import json
import os
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


def save_three(path):
    for step in (1, 2, 3):
        checkpoint.save_and_keep(path, {"step": step, "weights": torch.full((5000,), float(step))})


def damage(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_the_last_two_are_kept(tmp_path):
    path = tmp_path / "last.pt"
    save_three(path)
    assert {p.name for p in tmp_path.iterdir()} == {"last.pt", "last.previous.pt", "checkpoints.json"}
    assert [checkpoint.load(each)["step"] for each in (path, checkpoint.previous(path))] == [3, 2]
    warnings = []
    assert checkpoint.load_last(path, warnings.append)["step"] == 3
    assert warnings == []
    known = json.loads((tmp_path / "checkpoints.json").read_text())["last.pt"]
    assert hashlib.sha256(path.read_bytes()).hexdigest() == known[0]


@pytest.mark.parametrize("how", [damage, lambda path: path.unlink(), lambda path: path.write_bytes(b"")])
def test_the_one_before_is_used_with_a_warning(tmp_path, how):
    path = tmp_path / "last.pt"
    save_three(path)
    how(path)
    warnings = []
    assert checkpoint.load_last(path, warnings.append)["step"] == 2
    assert len(warnings) == 1
    assert "resuming from the checkpoint before it" in warnings[0]
    damage(checkpoint.previous(path))
    with pytest.raises(UserError, match=r"damaged|cut short"):
        checkpoint.load_last(path, warnings.append)


def test_a_checkpoint_that_somebody_put_there_is_used_with_a_warning(tmp_path):
    """As an earlier one, to go back to: it is whole, but its SHA-256 is not one that this run recorded."""
    path = tmp_path / "last.pt"
    save_three(path)
    checkpoint.save(path, {"step": 9})
    warnings = []
    assert checkpoint.load_last(path, warnings.append)["step"] == 9
    assert len(warnings) == 1
    assert "its SHA-256 differs" in warnings[0]


def test_an_error_of_the_device_is_not_mistaken_for_a_full_disk(tmp_path, monkeypatch):
    def fail(*_):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(torch, "save", fail)
    with pytest.raises(RuntimeError, match="illegal memory access"):
        checkpoint.save(tmp_path / "last.pt", CONTENT)


@pytest.mark.parametrize("moment", ["digests", "kept", "place"])
def test_wherever_the_machine_stops_both_are_whole(tmp_path, monkeypatch, moment):
    path = tmp_path / "last.pt"
    save_three(path)

    class Off(BaseException):
        pass

    def stop(*_, **__):
        raise Off

    with monkeypatch.context() as patch:
        if moment == "place":
            real = Path.replace
            patch.setattr(Path, "replace", lambda self, to: stop() if to == path else real(self, to))
        else:
            patch.setattr(checkpoint, {"digests": "write_json", "kept": "_keep"}[moment], stop)
        with pytest.raises(Off):
            checkpoint.save_and_keep(path, {"step": 4})
    warnings = []
    assert checkpoint.load_last(path, warnings.append)["step"] == 3
    assert warnings == []


def test_the_true_reason_of_a_full_disk(tmp_path, monkeypatch):
    """torch hides it: the error comes from the file."""
    real = os.fdopen

    class Full:
        def __init__(self, file):
            self.file = file

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self.file.close()

        def write(self, data):
            if len(data) > 1000:
                raise OSError(errno.EDQUOT, "Disk quota exceeded")
            return self.file.write(data)

        def flush(self):
            self.file.flush()

        def fileno(self):
            return self.file.fileno()

    monkeypatch.setattr(os, "fdopen", lambda *args, **options: Full(real(*args, **options)))
    with pytest.raises(UserError, match="Disk quota exceeded"):
        checkpoint.save(tmp_path / "last.pt", CONTENT)


def test_nothing_that_is_not_finite_is_saved(tmp_path):
    content = {"networks": [{"w": torch.ones(2)}, {"w": torch.tensor([1.0, float("nan")])}]}
    with pytest.raises(UserError, match=r"networks\.1\.w is not finite"):
        checkpoint.save(tmp_path / "last.pt", content)
    assert not any(tmp_path.iterdir())


def test_other_files_of_the_folder_are_not_mistaken_for_the_one_before(tmp_path):
    save_three(tmp_path / "last.pt")
    assert checkpoint.load_last(tmp_path / "linear_state.pt", print) is None
    checkpoint.save(tmp_path / "linear_state.pt", {"step": 7})
    assert checkpoint.load_last(tmp_path / "linear_state.pt", print)["step"] == 7
