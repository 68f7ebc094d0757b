"""Fine-tuning that is stopped and resumed, and what counts as the same work."""

import pytest
import torch
from PIL import Image
from stopping import stopping_at

from scfs.errors import UserError
from scfs.evaluate.finetune.classifier import ClassifierLearner
from scfs.evaluate.finetune.folder import read_grid
from scfs.evaluate.training_folder import open_folder
from scfs.runs import checkpoint
from scfs.runs.backbone_record import FINE_TUNED, read_records
from scfs.training import loop

QUICK = ("--size", 32, "--workers", 0, "--epochs", 2, "--batch_size", 4, "--weight_decays", 0)
ONE = (*QUICK, "--rates", 0.1)


@pytest.mark.parametrize("at", [2, 3, 6])  # at the end of the first cell, in the second, in the last training
def test_a_stopped_training_resumes_exactly(scfs, trained, photos, tmp_path, monkeypatch, steps_of, at):
    steps = steps_of(ClassifierLearner)
    grid = ("--rates", 0.01, 0.1, "--held_out", 0.3)
    commands = [("finetune", trained, "--data", photos, *QUICK, *grid, "--out", tmp_path / name) for name in "ab"]
    assert scfs(*commands[0])[0] == 0
    steps_of_whole = [*steps]
    with monkeypatch.context() as patch:
        patch.setattr(loop, "Interrupt", stopping_at(at))
        code, _, err = scfs(*commands[1])
    assert code == 130
    assert "run the same command again to resume" in err
    steps.clear()
    code, _, err = scfs(*commands[1])
    assert code == 0, err
    assert steps == steps_of_whole[at:] != []
    whole, resumed = (read_records(checkpoint.load(tmp_path / name / "last.pt"))[FINE_TUNED].tensors for name in "ab")
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    assert read_grid(tmp_path / "a") == read_grid(tmp_path / "b")
    code, _, err = scfs(*commands[1])
    assert code == 2
    assert "exists and does not hold the same unfinished work" in err


def test_other_weights_are_not_the_same_work(scfs, trained, photos, tmp_path, monkeypatch):
    command = ("--data", photos, *ONE, "--out", tmp_path / "out")
    with monkeypatch.context() as patch:
        patch.setattr(loop, "Interrupt", stopping_at(1))
        assert scfs("finetune", trained, *command)[0] == 130
    code, _, err = scfs("finetune", trained, *command, "--network", "student")
    assert code == 2
    assert "does not hold the same unfinished work" in err


def test_other_images_are_not_the_same_work(scfs, trained, photos, tmp_path, monkeypatch):
    names = tmp_path / "names.txt"
    names.write_text("cats/0.jpg\ncats/1.jpg\ndogs/0.jpg\ndogs/1.jpg\n")
    commands = [("--out", tmp_path / "all"), ("--images", names, "--out", tmp_path / "some")]
    for command in commands:
        with monkeypatch.context() as patch:
            patch.setattr(loop, "Interrupt", stopping_at(1))
            assert scfs("finetune", trained, "--data", photos, *ONE, *command)[0] == 130
    names.write_text("cats/0.jpg\ncats/1.jpg\ndogs/0.jpg\ndogs/2.jpg\n")
    assert "the same unfinished work" in scfs("finetune", trained, "--data", photos, *ONE, *commands[1])[2]
    Image.new("RGB", (20, 20)).save(photos / "dogs" / "new.jpg")
    assert "the same unfinished work" in scfs("finetune", trained, "--data", photos, *ONE, *commands[0])[2]


def test_unfinished_work_is_continued_however_the_run_is_spelled(trained, tmp_path):
    settings = {"target": str(trained), "weights": "0123", "epochs": 3, "show": 8}
    folder = open_folder("finetune", str(trained), str(tmp_path / "out"), settings)
    spelled = settings | {"target": f"{trained}/last.pt", "show": 4}
    assert open_folder("finetune", f"{trained}/last.pt", str(folder), spelled) == folder
    with pytest.raises(UserError, match="does not hold the same unfinished work"):
        open_folder("finetune", str(trained), str(folder), settings | {"weights": "4567"})
