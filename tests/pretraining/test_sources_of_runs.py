"""Pre-training on files that cannot all be read, and from existing weights."""

import os

import pytest
import torch

from scfs import distributed
from scfs.errors import UserError, WorkerDiedError
from scfs.pretraining import score
from scfs.runs import checkpoint

FLAGS = ["--optim.epochs", 1, "--data.workers", 0]


@pytest.fixture
def damaged(photos):
    (photos / "cats" / "2.jpg").write_bytes(b"no image")
    return photos


def test_an_unreadable_image_is_replaced_and_listed(scfs, tiny_recipe, damaged, tmp_path):
    words = ["pretrain", tiny_recipe, "--data.source", damaged, "--run.folder", tmp_path / "run", *FLAGS]
    code, out, _ = scfs(*words)
    assert code == 0
    assert out.count("Unreadable, replaced by the next image") == 1
    listed = (tmp_path / "run" / "unreadable.txt").read_text().splitlines()
    assert len(listed) == 1
    assert "cats/2.jpg" in listed[0]


def test_unreadable_images_of_other_processes_are_reported_too(scfs, tiny_recipe, photos, tmp_path, monkeypatch):
    monkeypatch.setattr(distributed, "sum_counts", lambda *counts: [1, *counts[1:]])
    others = {list: [["elsewhere.jpg: it is empty"]]}
    monkeypatch.setattr(distributed, "gather", lambda own: [own, *others.get(type(own), [])])
    words = ["pretrain", tiny_recipe, "--data.source", photos, "--run.folder", tmp_path / "run", *FLAGS]
    code, out, err = scfs(*words)
    assert code == 0, err
    assert out.count("Unreadable, replaced by the next image: elsewhere.jpg: it is empty") == 1
    assert (tmp_path / "run" / "unreadable.txt").read_text() == "elsewhere.jpg: it is empty\n"


def test_a_folder_that_settings_cannot_name(scfs, tiny_recipe, photos, tmp_path):
    data = photos.rename(photos.with_name(os.fsdecode(b"caf\xe9")))
    code, _, err = scfs("pretrain", tiny_recipe, "--data.source", data, "--run.folder", tmp_path / "run", *FLAGS)
    assert code == 2
    assert r"caf\xe9" in err
    assert "this name is not UTF-8; rename the file, or link to it." in err
    assert not (tmp_path / "run").exists()


def test_a_run_folder_at_home(scfs, tiny_recipe, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert scfs("pretrain", tiny_recipe, "--run.folder", "~/run", *FLAGS)[0] == 0
    assert (tmp_path / "home" / "run" / "last.pt").is_file()


@pytest.mark.parametrize(("error", "code"), [(WorkerDiedError, 2), (UserError, 0)])
def test_a_score_ends_a_run_only_if_this_process_alone_failed(
    scfs, tiny_recipe, photos, tmp_path, monkeypatch, error, code
):
    def extract(*_, **__):
        raise error("no scores today")

    monkeypatch.setattr(score, "extract", extract)
    words = ["pretrain", tiny_recipe, "--data.source", photos, "--run.knn_every_epochs", 1, *FLAGS]
    found, out, err = scfs(*words, "--run.folder", tmp_path / "run")
    assert found == code
    assert "no scores today" in (err if code else out)


def test_consecutive_unreadable_images_are_listed_once_each(scfs, tiny_recipe, photos, tmp_path):
    for i in range(1, 4):
        (photos / "cats" / f"{i}.jpg").write_bytes(b"no image")
    (photos / "cats" / "3.jpg").rename(photos / "cats" / os.fsdecode(b"3 caf\xe9.jpg"))
    words = ["pretrain", tiny_recipe, "--data.source", photos, "--run.folder", tmp_path / "run", *FLAGS]
    code, _, err = scfs(*words)
    assert code == 0, err
    assert len((tmp_path / "run" / "unreadable.txt").read_text().splitlines()) == 3


def test_scores_that_fail_do_not_stop_a_run(scfs, tiny_recipe, photos, tmp_path):
    for i in (2, 3):
        (photos / "cats" / f"{i}.jpg").write_bytes(b"no image")
        (photos / "dogs" / f"{i}.jpg").write_bytes(b"no image")
    (photos / "cats" / "0.jpg").write_bytes(b"no image")  # five of the ten train images, and of all twelve
    words = ["pretrain", tiny_recipe, "--data.source", photos, "--run.folder", tmp_path / "run", *FLAGS]
    code, out, _ = scfs(*words, "--run.knn_every_epochs", 1)
    assert code == 0
    assert out.count("Online scores stopped: 5 of 10 images cannot be read") == 1
    assert (tmp_path / "run" / "last.pt").exists()


def test_too_many_unreadable_images_stop_the_run(scfs, tiny_recipe, photos, tmp_path):
    for path in photos.glob("cats/*.jpg"):
        path.write_bytes(b"no image")
    code, _, err = scfs("pretrain", tiny_recipe, "--data.source", photos, "--run.folder", tmp_path / "run", *FLAGS)
    assert code == 2
    assert "6 of 12 images cannot be read, more than the 5 allowed (all are listed in " in err
    assert "unreadable.txt); repair or remove them." in err
    assert err.count("\n") == 1


def test_start_from_another_run(scfs, tiny_recipe, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    assert scfs("pretrain", tiny_recipe, "--run.folder", first, *FLAGS)[0] == 0
    slow = ["--optim.lr", 1e-9, "--optim.final_lr", 0, "--method.momentum", 1]
    code, out, _ = scfs("pretrain", tiny_recipe, "--run.folder", second, "--init", first, *FLAGS, *slow, "--seed", 5)
    assert code == 0
    assert " tensors from " in out
    ours, theirs = (checkpoint.load(run / "last.pt")["method"] for run in (second, first))
    weights = [name for name in theirs if name.startswith("teacher.backbone.") and name.endswith("weight")]
    assert len(weights) > 10
    for name in weights:
        torch.testing.assert_close(ours[name], theirs[name])
    (first / "last.pt").unlink()  # not needed to resume
    assert scfs("pretrain", second, "--resume")[0] == 0


def test_weights_of_another_architecture_are_refused(scfs, tiny_recipe, tmp_path):
    first = tmp_path / "first"
    assert scfs("pretrain", tiny_recipe, "--run.folder", first, *FLAGS)[0] == 0
    code, _, err = scfs(
        "pretrain", tiny_recipe, "--init", first, "--backbone.name", "resnet18", "--run.folder", tmp_path / "second"
    )
    assert code == 2
    assert "does not fit backbone 'resnet18'" in err
    assert not (tmp_path / "second").exists()


@pytest.mark.parametrize(
    "flags",
    [
        ["--optim.accumulate", 2, "--run.gradient_checkpointing", "true"],
        ["--optim.precision", "bfloat16"],
        ["--optim.name", "lars", "--views.path", "reference"],
    ],
)
def test_settings_of_the_training_step(scfs, tiny_recipe, tmp_path, flags):
    assert scfs("pretrain", tiny_recipe, "--run.folder", tmp_path / "run", *FLAGS, *flags)[0] == 0


def test_micro_batches_must_divide_the_batch_of_a_process(scfs, tiny_recipe, tmp_path):
    code, _, err = scfs("pretrain", tiny_recipe, "--optim.accumulate", 3, "--run.folder", tmp_path / "run")
    assert code == 2
    assert "optim.accumulate 3 does not divide the 4 images" in err
