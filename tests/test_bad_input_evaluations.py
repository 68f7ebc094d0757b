"""Mistakes with weights and labelled images: one sentence and exit code 2."""

import shutil

import pytest
import torch

from tests.test_bad_input import refused


@pytest.mark.parametrize("content", [b"", b"no checkpoint", b"PK\x03\x04 cut short"])
def test_knn_of_a_file_that_is_not_a_checkpoint(scfs, tmp_path, content):
    path = tmp_path / "weights.pt"
    path.write_bytes(content)
    assert refused(scfs("knn", path, "--data", "scenes:8,4"), "is not a checkpoint of scfs")


def test_knn_of_a_foreign_file(scfs, tmp_path):
    torch.save({"model": torch.zeros(3)}, tmp_path / "weights.pt")
    assert refused(scfs("knn", tmp_path / "weights.pt", "--data", "scenes:8,4"), "is not a checkpoint of scfs")


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ([], ["a run folder"]),
        (["nowhere"], ["Nothing at nowhere"]),
        (["."], ["has no checkpoint"]),
        (["random:resnet5000"], ["'resnet5000'"]),
        (["random:resnet10_half"], ["random:resnet10_half is not a run", "--data"]),
        (["random:resnet18", "--data", "nowhere"], ["No folder at nowhere"]),
        (["random:resnet18", "--kk", "3"], ["Unknown setting 'kk'"]),
        (["random:resnet18", "--k", "0"], ["'k'", "greater than 0"]),
    ],
)
def test_knn_refuses(scfs, tmp_path, monkeypatch, words, parts):
    monkeypatch.chdir(tmp_path)
    assert refused(scfs("knn", *words), *parts)


@pytest.mark.parametrize("words", [["linear", "--rates"], ["finetune", "--rates"], ["finetune", "--weight_decays"]])
def test_a_rate_given_twice(scfs, words):
    command, flag = words
    answer = scfs(command, "random:resnet10_half", "--data", "scenes:40,20", flag, 0.1, 0.1)
    assert refused(answer, f"Setting '{flag[2:]}' names a value twice; give each once")


def test_knn_without_labels(scfs, photos):
    assert refused(scfs("knn", "random:resnet10_half", "--data", photos / "cats"), "have no labels")


def test_knn_with_differing_classes(scfs, photos, tmp_path):
    root = tmp_path / "data"
    (root / "val").mkdir(parents=True)
    photos.rename(root / "train")
    (root / "train" / "cats").rename(root / "val" / "birds")
    assert refused(scfs("knn", "random:resnet10_half", "--data", root), "differ", "birds", "the same class folders")


def test_val_images_without_train_images(scfs, photos, tmp_path):
    (tmp_path / "data").mkdir()
    photos.rename(tmp_path / "data" / "val")
    answer = scfs("knn", "random:resnet10_half", "--data", tmp_path / "data")
    assert refused(answer, "has a folder val but no train beside it", "data/val")


def test_splits_are_no_classes(scfs, photos, tmp_path):
    """Folders named val and test would score as two classes."""
    for name in ("Test", "val"):
        shutil.copytree(photos, tmp_path / "data" / name)
    answer = scfs("knn", "random:resnet10_half", "--data", tmp_path / "data")
    assert refused(answer, "has a folder Test but no train beside it", "data/Test")


def test_a_number_of_neighbours_given_twice(scfs, photos):
    answer = scfs("knn", "random:resnet10_half", "--data", photos, "--k", 20, 20)
    assert refused(answer, "'k' names a value twice")


def test_unreadable_image(scfs, photos):
    words = ("knn", "random:resnet10_half", "--data", photos, "--size", 32, "--workers", 0)
    (photos / "cats" / "0.jpg").write_bytes(b"no image")
    code, out, _ = scfs(*words)
    assert code == 0
    assert out.count("Unreadable, left out: ") == 1
    for path in photos.glob("cats/*.jpg"):
        path.write_bytes(b"no image")
    assert refused(scfs(*words), "5 of 10 images cannot be read, more than the 4 allowed", "0.jpg", "3.jpg")
