"""A run finds its images from any working directory, and after they have moved."""

import pytest

from scfs.data.locations import absolute_source
from scfs.recipe import read_toml
from scfs.runs import checkpoint
from scfs.runs.layout import write_settings


@pytest.fixture
def run(scfs, tiny_recipe, photos, tmp_path, monkeypatch):
    """A run started with a relative path, and then the working directory changed."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "classes.txt").write_text("cats\ndogs\n")
    words = ("--data.source", photos.name, "--data.classes", "classes.txt", "--optim.epochs", 1)
    code, _, err = scfs("pretrain", tiny_recipe, *words, "--run.folder", "run")
    assert code == 0, err
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return tmp_path / "run"


def test_report_and_resume_from_elsewhere(scfs, run, photos, tmp_path):
    data = read_toml(run / "settings.toml")["data"]
    assert (data["source"], data["classes"]) == (str(photos), str(tmp_path / "classes.txt"))
    for command in (("pretrain", run, "--resume"), ("report", run)):
        code, _, err = scfs(*command)
        assert code == 0, err


def test_moved_images(scfs, run, photos, tmp_path):
    photos.rename(tmp_path / "moved")
    code, _, err = scfs("report", run)
    assert (code, err.count("\n")) == (2, 1)
    assert f"No folder at {photos}; if the images of {run} have moved, add --data" in err
    code, _, err = scfs("report", run, "--data", tmp_path / "moved")
    assert code == 0, err


@pytest.fixture
def stopped(run):
    """The run as if it had stopped after two of its three steps."""
    saved = checkpoint.load(run / "last.pt")
    checkpoint.save(run / "last.pt", {**saved, "step": 2})
    return run


def test_resume_with_moved_images(scfs, stopped, photos, tmp_path):
    photos.rename(tmp_path / "moved")
    (tmp_path / "classes.txt").rename(tmp_path / "names.txt")
    code, _, err = scfs("pretrain", stopped, "--resume")
    assert (code, err.count("\n")) == (2, 1)
    assert f"No folder at {photos}; if the images of the run have moved, add --data.source" in err
    moved = ("--data.source", tmp_path / "moved", "--data.classes", tmp_path / "names.txt")
    code, out, err = scfs("pretrain", stopped, "--resume", *moved)
    assert code == 0, err
    assert f"The 12 images are read from {tmp_path / 'moved'}, no longer {photos}." in out
    assert read_toml(stopped / "settings.toml")["data"]["source"] == str(tmp_path / "moved")
    code, out, err = scfs("pretrain", stopped, "--resume")  # it is found there from now on
    assert code == 0, err
    assert "is finished" in out


@pytest.mark.parametrize("change", ["a name", "a class", "the number"])
def test_resume_with_other_images(scfs, stopped, photos, tmp_path, change):
    before = (stopped / "last.pt").read_bytes()
    moved = photos.rename(tmp_path / "moved")
    if change == "a name":
        (moved / "cats" / "3.jpg").rename(moved / "cats" / "other.jpg")
    elif change == "a class":
        (moved / "dogs" / "5.jpg").rename(moved / "cats" / "5b.jpg")
    else:
        (moved / "cats" / "3.jpg").unlink()
    code, _, err = scfs("pretrain", stopped, "--resume", "--data.source", moved)
    assert (code, err.count("\n")) == (2, 1)
    differs = "their names or classes differ; give the same images to resume"
    assert ("12 images, and the data now has 11" if change == "the number" else differs) in err
    assert (stopped / "last.pt").read_bytes() == before
    assert read_toml(stopped / "settings.toml")["data"]["source"] == str(photos)


@pytest.mark.parametrize("is_old", [False, True])
def test_resume_with_another_class_list(scfs, stopped, photos, tmp_path, is_old):
    """Of the same length; runs of version 0.1 have no names to compare, and their class list must not change."""
    if is_old:
        saved = checkpoint.load(stopped / "last.pt")
        del saved["image_names"]
        checkpoint.save(stopped / "last.pt", saved)
    (tmp_path / "other.txt").write_text("dogs\ncats\n")
    code, _, err = scfs("pretrain", stopped, "--resume", "--data.classes", tmp_path / "other.txt")
    assert code == 2
    assert "their names or classes differ" in err
    photos.rename(tmp_path / "moved")
    code, _, err = scfs("pretrain", stopped, "--resume", "--data.source", tmp_path / "moved")
    assert code == 0, err


def test_initial_weights_from_elsewhere(scfs, run, tiny_recipe, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ("--init", "run/last.pt", "--optim.epochs", 1, "--run.folder", "second")
    code, _, err = scfs("pretrain", tiny_recipe, *words)
    assert code == 0, err
    second = tmp_path / "second"
    assert read_toml(second / "settings.toml")["backbone"]["init"] == str(run / "last.pt")
    checkpoint.save(second / "last.pt", {**checkpoint.load(second / "last.pt"), "step": 2})
    monkeypatch.chdir(tmp_path / "elsewhere")
    code, _, err = scfs("pretrain", second, "--resume")
    assert code == 0, err
    code, _, err = scfs("pretrain", second, "--run.folder", tmp_path / "third")  # a new run with its settings
    assert code == 0, err


def test_a_run_with_a_relative_source_resumes_in_its_directory(scfs, run, photos, tmp_path, monkeypatch):
    """As runs of version 0.1 have it."""
    saved = checkpoint.load(run / "last.pt")
    saved["settings"]["data"] |= {"source": photos.name, "classes": "classes.txt"}
    checkpoint.save(run / "last.pt", saved)
    settings = read_toml(run / "settings.toml")
    settings["data"] |= {"source": photos.name, "classes": "classes.txt"}
    write_settings(run, settings)
    monkeypatch.chdir(tmp_path)
    code, _, err = scfs("pretrain", "run", "--resume")
    assert code == 0, err
    code, _, err = scfs("pretrain", "run", "--resume", "--data.source", photos / "cats", "--data.classes", "")
    assert code == 2
    assert "was trained on 12 images, and the data now has 6; restore the old ones" in err


def test_the_forms_of_a_source(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for unchanged in ("", "scenes", "scenes:12,8", "cub:", "https://host/a.tar", "/data/photos"):
        assert absolute_source(unchanged) == unchanged
    assert absolute_source("photos/") == absolute_source("./photos") == str(tmp_path / "photos")
    assert absolute_source("../photos") == str(tmp_path.parent / "photos")
    assert absolute_source("cub:birds") == f"cub:{tmp_path / 'birds'}"
    assert absolute_source("shards/*.tar") == str(tmp_path / "shards" / "*.tar")
    monkeypatch.setenv("HOME", "/home/ada")
    assert absolute_source("~/photos") == "/home/ada/photos"
