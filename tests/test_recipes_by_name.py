"""Recipes are part of the package and are given by name; a run or a folder of photos may be given instead."""

import re
import shutil
import tarfile
import tomllib

import pytest
from conftest import RECIPES, REPO

from scfs.config import Config
from scfs.errors import UserError
from scfs.recipe import check, read_toml
from scfs.recipes.catalogue import read_recipe, recipe_names, starting_point


def test_names_and_paths():
    assert read_recipe("quickstart", "pretrain") == read_recipe(str(RECIPES / "quickstart.toml"), "pretrain")
    assert read_recipe("own-photos", "pretrain").name == "own_photos"
    assert "transfer" in recipe_names("finetune")


@pytest.mark.parametrize(
    ("name", "kind", "hint"),
    [
        ("quickstrat", "pretrain", "did you mean quickstart"),
        ("semi_supervised", "finetune", "semi_supervised_1 or semi_supervised_10"),
        ("xyz", "finetune", "choose one of semi_supervised_1, "),
    ],
)
def test_unknown_names(name, kind, hint):
    with pytest.raises(UserError, match=f"'{name}'.*{hint}"):
        read_recipe(name, kind)


def test_listing_recipes_and_printing_one(scfs):
    code, out, _ = scfs("recipes")
    assert code == 0
    for kind in ("pretrain", "finetune"):
        assert f"For scfs {kind}:" in out
        assert all(f"\n{name}\n" in out for name in recipe_names(kind))
    assert "    The demo: SCFS on the embedded scenes.\n    command   scfs pretrain quickstart\n" in out
    assert scfs("recipes", "quickstart")[1] == (RECIPES / "quickstart.toml").read_text(encoding="utf-8")
    assert "fraction" in tomllib.loads(scfs("recipes", "semi_supervised_1")[1])
    assert "did you mean transfer?" in scfs("recipes", "tranfser")[2]


def test_a_folder_of_photos_uses_the_settings_of_own_photos(scfs, photos, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["--optim.batch_size", "999", "--data.workers", "0"]  # more than there are: refused after the settings
    code, out, err = scfs("pretrain", photos, *words)
    assert (code, "12 images" in err) == (2, True)
    assert out.startswith(f"{photos} is a folder of images: the settings are those of own_photos.")
    code, out, err = scfs("pretrain", "--data.source", photos, *words)
    assert (code, "12 images" in err) == (2, True)
    assert "those of own_photos" in out
    expected = check(Config, read_recipe("own_photos", "pretrain").values, {"data.source": str(photos)})
    assert check(Config, starting_point(str(photos), {}).values) == expected


def test_a_recipe_takes_precedence_over_a_folder_and_a_run_over_a_recipe(trained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "quickstart").mkdir()
    assert starting_point("quickstart", {}).values["data"]["source"] == "scenes"
    (tmp_path / "quickstart").rmdir()
    trained.rename(tmp_path / "quickstart")
    assert starting_point("quickstart", {}).values["data"]["source"] == "scenes:12,8"


def test_auto_chooses_again_for_a_new_run(scfs, trained, tmp_path):
    first, other = read_toml(trained / "settings.toml"), tmp_path / "other"
    assert first["views"]["local_scale"] == [0.05, 0.14]
    words = ("--method.variant", "released", "--run.folder", other, "--optim.epochs", 1)
    code, out, err = scfs("pretrain", trained, *words)
    assert code == 0, err
    assert f"A new run with the settings of {trained}; --resume continues that run." in out
    views = read_toml(other / "settings.toml")["views"]
    assert (views["global_scale"], views["local_scale"]) == ([0.25, 1.0], [0.05, 0.25])
    assert starting_point(str(trained), {}).values["views"]["local_scale"] == "auto"
    assert starting_point(str(trained), {}, resume=True).values["views"]["local_scale"] == [0.05, 0.14]


def test_explicit_settings_of_a_run_are_not_auto_again(scfs, tiny_recipe, tmp_path):
    run, flags = tmp_path / "run", ["--views.local_scale", "0.1", "0.2", "--run.keep_every_epochs", "1"]
    assert scfs("pretrain", tiny_recipe, "--run.folder", run, *flags)[0] == 0
    shutil.copy(run / "epoch_0001.pt", run / "last.pt")  # as if it had stopped after the first of two epochs
    assert scfs("pretrain", run, "--resume", "--run.checkpoint_every_steps", 7)[0] == 0
    values = starting_point(str(run), {}).values
    assert values["views"]["local_scale"] == [0.1, 0.2]
    assert values["views"]["global_scale"] == "auto"
    assert values["run"]["checkpoint_every_steps"] == 7


def test_a_run_without_a_record_of_auto_is_used_unchanged(tmp_path):
    with tarfile.open(REPO / "tests" / "runs" / "run_of_0.1.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    values = starting_point(str(tmp_path / "old_run"), {}).values
    saved = read_toml(tmp_path / "old_run" / "settings.toml")
    assert values == {**saved, "run": {**saved["run"], "folder": "auto"}}
    shutil.rmtree(tmp_path / "old_run")


@pytest.mark.parametrize("content", ["[3]", '[{"value": 1}]', "{"])
def test_a_damaged_record_of_auto(trained, content):
    (trained / "auto.json").write_text(content)
    with pytest.raises(UserError, match=r"auto.json is damaged; "):
        starting_point(str(trained), {})
    starting_point(str(trained), {}, resume=True)  # which does not need it


def test_the_demos_numbers_are_the_same_everywhere():
    header = (RECIPES / "quickstart.toml").read_text(encoding="utf-8")
    start, end = re.search(r"from ([\d.]+) % .* to ([\d.]+) %", header).groups()
    minutes = re.search(r"# time +([\d.]+) minutes", header)[1]
    readme = (REPO / "README.md").read_text(encoding="utf-8")
    assert f"k-NN top-1: {start} % before training, {end} % after" in readme
    assert f"Training took {minutes} minutes" in readme
