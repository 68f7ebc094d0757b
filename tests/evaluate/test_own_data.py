import shutil

import pytest
from PIL import Image

from scfs.errors import UserError
from scfs.runs.results import read_results

QUICK = {
    "knn": ("--k", 2),
    "linear": ("--cached", "--epochs", 1),
    "finetune": ("--epochs", 1, "--rates", 0.01, "--weight_decays", 0, "--batch_size", 4),
}


@pytest.fixture
def run_on(scfs, tiny_recipe, tmp_path):
    """The folder of a run of one epoch on some source."""

    def pretrain(source, *flags):
        words = ("pretrain", tiny_recipe, "--data.source", source, *flags, "--optim.epochs", 1)
        assert scfs(*words, "--run.folder", tmp_path / "run")[0] == 0
        return tmp_path / "run"

    return pretrain


@pytest.mark.parametrize("command", QUICK)
def test_without_data_a_run_is_scored_on_its_own_images(scfs, photos, run_on, command):
    run = run_on(photos)
    code, out, err = scfs(command, run, "--workers", 0, *QUICK[command])
    assert code == 0, err
    assert f"No --data given: using the run's own images, {photos}." in out
    [result] = read_results(run)
    assert result.data == str(photos)
    assert result.settings["train_images"] == 10


def test_its_class_list_applies_too_and_fine_tuned_networks_know_theirs(scfs, photos, run_on, tmp_path):
    shutil.copytree(photos / "dogs", photos / "birds")
    (tmp_path / "classes.txt").write_text("cats\nbirds\n", encoding="utf-8")
    run = run_on(photos, "--data.classes", tmp_path / "classes.txt")
    assert "10 train and 2 val images" in scfs("knn", run, "--workers", 0, "--k", 2)[1]
    assert scfs("finetune", run, "--data", photos, "--workers", 0, *QUICK["finetune"])[0] == 0
    assert "15 train and 3 val images" in scfs("knn", run / "finetune", "--workers", 0, "--k", 2)[1]
    assert "10 train and 2 val images" in scfs("knn", run / "last.pt", "--workers", 0, "--k", 2)[1]


PICTURES = {
    "attend": ("attend", "--count", 18, "--size", 32),
    "overaug": ("overaug", "--audit", "--views", 1),
}


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_use_the_class_list_too(scfs, photos, run_on, tmp_path, name):
    shutil.copytree(photos / "dogs", photos / "birds")
    (tmp_path / "classes.txt").write_text("cats\nbirds\n", encoding="utf-8")
    run = run_on(photos, "--data.classes", tmp_path / "classes.txt")
    for path in (photos / "dogs").iterdir():
        path.write_bytes(b"not an image")
    command, *flags = PICTURES[name]
    code, out, err = scfs(command, run, *flags)
    assert (code, err) == (0, "")
    assert f"using the run's own images, {photos}." in out
    assert "Cannot read" not in out


def test_its_limit_of_pixels_applies_to_all_images(scfs, photos, run_on, tmp_path):
    run = run_on(photos, "--data.max_megapixels", 1)
    Image.new("RGB", (1100, 1000)).save(large := photos / "cats" / "large.png")
    problem = f"Cannot read image {large}: 1100 x 1000 is more than 1000000 pixels"
    for words in (
        *((command, run, "--workers", 0, *flags) for command, flags in QUICK.items()),
        ("knn", run / "finetune", "--data", photos, "--workers", 0, *QUICK["knn"]),
        ("predict", run, photos, "--workers", 0),
        ("embed", run, photos, tmp_path / "out.npy", "--workers", 0),
        *((command, run, *flags) for command, *flags in PICTURES.values()),
    ):
        code, out, err = scfs(*words)
        assert (code, err) == (0, ""), words
        assert problem in out, words
    for flags in (("--images", large), ("--images", photos / "cats" / "0.jpg", "--show", "other", "--other", large)):
        assert problem in scfs("attend", run, *flags)[2]
    assert problem in scfs("embed", run, photos, "--query", large, "--nearest", 1)[2]


@pytest.mark.parametrize(("command", "opener"), [("detect", "open_annotated"), ("segment", "open_segmented")])
def test_its_limit_of_pixels_applies_to_annotated_images(scfs, trained, monkeypatch, command, opener):
    settings = trained / "settings.toml"
    text = settings.read_text(encoding="utf-8")
    settings.write_text(text.replace("max_megapixels = 100", "max_megapixels = 250"), encoding="utf-8")
    seen = []

    def opened(_, *, max_pixels):
        seen.append(max_pixels)
        raise UserError("enough")

    monkeypatch.setattr(f"scfs.evaluate.{command}.job.{opener}", opened)
    assert "enough" in scfs(command, trained)[2]
    assert seen == [250_000_000]


@pytest.mark.parametrize("name", PICTURES)
def test_images_that_are_gone_ask_for_data_of_pictures_too(scfs, photos, run_on, tmp_path, name):
    run = run_on(photos)
    photos.rename(tmp_path / "moved")
    command, *flags = PICTURES[name]
    code, _, err = scfs(command, run, *flags)
    assert code == 2
    assert f"where the images of {run} were; give" in err


@pytest.mark.parametrize("command", QUICK)
def test_a_run_on_images_without_labels_asks_for_data(scfs, photos, run_on, command):
    run = run_on(photos / "cats")
    code, _, err = scfs(command, run, "--workers", 0, *QUICK[command])
    assert code == 2
    assert f"was trained on {photos / 'cats'}, which has no labels; give labelled images with --data" in err
    assert not read_results(run)


def test_weights_alone_need_data(scfs, trained, tmp_path):
    assert scfs("export", trained, tmp_path / "out.safetensors")[0] == 0
    code, _, err = scfs("knn", tmp_path / "out.safetensors", "--workers", 0)
    assert code == 2
    assert "is not a run with its own images; give labelled images with --data." in err


def test_images_that_are_gone_ask_for_data(scfs, photos, run_on, tmp_path):
    run = run_on(photos)
    photos.rename(tmp_path / "moved")
    code, _, err = scfs("knn", run, "--workers", 0)
    assert code == 2
    assert f"where the images of {run} were; give labelled images with --data" in err
    assert err.count("\n") == 1


def test_relative_paths_are_recorded_for_any_working_directory(scfs, photos, run_on, tmp_path, monkeypatch):
    run = run_on(photos)
    (photos.parent / "classes.txt").write_text("cats\ndogs\n", encoding="utf-8")
    monkeypatch.chdir(photos.parent)
    given = ("--data", photos.name, "--classes", "classes.txt", "--workers", 0)
    assert scfs("knn", run, *given, *QUICK["knn"])[0] == 0
    assert scfs("finetune", run, *given, *QUICK["finetune"])[0] == 0
    (elsewhere := tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(elsewhere)
    assert {result.data for result in read_results(run)} == {str(photos)}
    code, out, err = scfs("knn", run / "finetune", "--workers", 0, *QUICK["knn"])
    assert (code, err) == (0, "")
    assert f"using the run's own images, {photos}." in out
