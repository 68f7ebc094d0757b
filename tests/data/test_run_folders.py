"""What scfs writes below a folder of photos never becomes data."""

import shutil
import tarfile

import pytest

from scfs.data import run_folders
from scfs.data.files import read_folder
from scfs.data.folder_walk import other_suffixes
from scfs.data.run_folders import holds_only_runs
from scfs.data.sources import open_all, open_train
from scfs.data.splits import unused_folders
from scfs.runs import layout


def make_run(folder, *names):
    """A run folder with these files, and pictures in it and in its report."""
    (folder / "report").mkdir(parents=True)
    for name in names or (layout.SETTINGS, layout.ENVIRONMENT):
        (folder / name).touch()
    for picture in ("attend.png", "report/views.png", "report/attention.png"):
        (folder / picture).touch()
    return folder


def test_the_names_are_those_of_the_layout():
    assert run_folders.SETTINGS == layout.SETTINGS
    assert run_folders.WRITTEN == (layout.ENVIRONMENT, layout.METRICS, layout.LAST)


@pytest.mark.parametrize("name", [layout.ENVIRONMENT, layout.METRICS, layout.LAST])
@pytest.mark.parametrize("place", ["runs/own_photos", "run", "cats/runs/own"])
def test_run_folders_are_no_data(photos, name, place):
    make_run(photos / place, layout.SETTINGS, name)
    source = read_folder(photos)
    assert (len(source), source.classes) == (12, ("cats", "dogs"))
    assert not other_suffixes(photos)
    assert len(open_all(str(photos / place))) == 3  # on request


@pytest.mark.parametrize("name", [layout.SETTINGS, layout.ENVIRONMENT])
def test_one_such_file_makes_no_run_folder(photos, name):
    make_run(photos / "birds", name)
    assert read_folder(photos).classes == ("birds", "cats", "dogs")


def test_a_run_beside_shards(photos, tmp_path):
    shards = tmp_path / "shards"
    shards.mkdir()
    with tarfile.open(shards / "a.tar", "w") as tar:
        for path in sorted(photos.rglob("*.jpg")):
            tar.add(path, path.name)
    assert len(open_train(str(shards))) == 12
    make_run(shards / "runs" / "own_photos")
    assert len(open_train(str(shards))) == 12


def test_folders_of_runs(photos, tmp_path):
    assert holds_only_runs(str(make_run(tmp_path / "runs" / "own")))
    (tmp_path / "runs" / "compare.md").touch()
    (tmp_path / "runs" / ".trash").mkdir()
    assert holds_only_runs(str(tmp_path / "runs"))
    (tmp_path / "runs" / "photo.jpg").touch()
    assert not holds_only_runs(str(tmp_path / "runs"))
    assert not holds_only_runs(str(photos))
    (tmp_path / "empty").mkdir()
    assert not holds_only_runs(str(tmp_path / "empty"))


def test_folders_beside_train_that_are_no_splits(photos, tmp_path):
    assert unused_folders(photos) == []
    for name in ("train", "Test", "unlabeled", "2023", ".hidden"):
        shutil.copytree(photos, tmp_path / "set" / name)
    make_run(tmp_path / "set" / "runs" / "own")
    (tmp_path / "set" / "labels.txt").touch()
    assert unused_folders(tmp_path / "set") == ["2023", "unlabeled"]


def test_a_run_inside_the_photos_can_be_resumed(scfs, photos, tiny_recipe, monkeypatch):
    monkeypatch.chdir(photos)
    assert scfs("pretrain", tiny_recipe, "--data.source", ".", "--run.folder", "runs/own", "--optim.epochs", 1)[0] == 0
    shutil.copy("cats/0.jpg", "runs/own/attend.jpg")  # as if drawn
    assert read_folder(photos).classes == ("cats", "dogs")
    code, printed, err = scfs("pretrain", "runs/own", "--resume")
    assert (code, err) == (0, "")
    assert "is finished" in printed
