import shutil

import pytest

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
