import json
import shutil

import numpy as np
import pytest
import torch
from conftest import RECIPES
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from scfs.backbones import load_backbone
from scfs.data.selection import class_balanced, labels_of, named_in
from scfs.data.sources import read_folder
from scfs.errors import UserError
from scfs.evaluate.accuracy import Accuracy
from scfs.evaluate.finetune.folder import read_grid
from scfs.evaluate.finetune.settings import Finetune
from scfs.recipe import check, read_toml
from scfs.runs.layout import read_metrics
from scfs.runs.results import read_results

QUICK = ("--size", 32, "--workers", 0, "--epochs", 2, "--batch_size", 4, "--weight_decays", 0)
ONE = (*QUICK, "--rates", 0.1)


def test_every_other_command_takes_the_network(scfs, trained, photos, tmp_path):
    code, out, err = scfs("finetune", trained, "--data", photos, *ONE)
    assert code == 0, err
    assert "Fine-tuning of" in out
    [result] = read_results(trained)
    assert result.evaluation == "finetune"
    assert [metric.name for metric in result.metrics] == ["top-1"]
    assert result.protocol.startswith("100 % of the labels, ")
    tuned = trained / "finetune"
    assert not list(tuned.glob("state*"))
    before, after = (load_backbone(str(run)).backbone.state_dict() for run in (trained, tuned))
    assert any(not torch.equal(before[name], after[name]) for name in before)
    for command in (
        ("knn", tuned, "--data", photos, "--k", 2),
        ("linear", tuned, "--data", photos, "--cached", "true", "--epochs", 1),
        ("predict", tuned, photos),
        ("export", tuned, tmp_path / "tuned.safetensors"),
        ("embed", tuned, photos, tmp_path / "tuned.npy"),
        ("finetune", tuned, "--data", photos, *ONE),
    ):
        code, _, err = scfs(*command)
        assert code == 0, err
    assert [result.evaluation for result in read_results(tuned)] == ["knn", "linear", "finetune"]
    code, _, err = scfs("report", tuned)
    assert code == 0, err
    page = (tuned / "report" / "index.html").read_text()
    for words in ("Curves", "finetune.rates", "Finished", "Confusion", f"{trained.name}/finetune"):
        assert words in page
    assert result.metrics[0].shown_interval() in page  # recorded in the run that it started from


def test_predict_uses_the_fine_tuned_classifier(scfs, photos, tmp_path):
    """After enough training it distinguishes two colours."""
    random = np.random.default_rng(0)
    for colour, name in ((20, "cats"), (200, "dogs")):
        for path in (photos / name).iterdir():
            Image.fromarray(random.integers(colour, colour + 50, (40, 48, 3), np.uint8)).save(path)
    settings = ("--size", 32, "--workers", 0, "--epochs", 30, "--batch_size", 10, "--rates", 1, "--weight_decays", 0)
    code, _, err = scfs("finetune", "random:resnet10_half", "--data", photos, "--out", tmp_path / "tuned", *settings)
    assert code == 0, err
    [result] = read_results(tmp_path / "tuned")
    assert result.metrics[0].value == 1.0
    code, _, err = scfs("predict", tmp_path / "tuned", photos, tmp_path / "out.csv")
    assert code == 0, err
    rows = (tmp_path / "out.csv").read_text().splitlines()[1:]
    assert all(("cats" in name) == (label == "cats") for name, label, _ in (row.split(",") for row in rows))


def test_from_scratch_ignores_the_weights(scfs, trained, photos, tmp_path):
    folders = [tmp_path / name for name in ("scratch", "random")]
    for target, words, folder in zip(
        (trained, "random:resnet10_half"), (("--from=scratch",), ()), folders, strict=True
    ):
        code, out, err = scfs("finetune", target, "--data", photos, *words, "--out", folder, *ONE)
        assert code == 0, err
        assert ("from scratch" in out) == bool(words)
        assert read_results(folder)
    assert not (trained / "results.json").exists()  # not a result of the run
    scratch, random = (load_backbone(str(folder)).backbone.state_dict() for folder in folders)
    assert all(torch.equal(scratch[name], random[name]) for name in scratch)


def test_only_weights_that_are_used_are_reported(scfs, trained, photos, tmp_path):
    weights = tmp_path / "backbone.safetensors"
    assert scfs("export", trained, weights)[0] == 0
    for start in ("weights", "scratch"):
        code, out, err = scfs("finetune", weights, "--data", photos, "--from", start, "--out", tmp_path / start, *ONE)
        assert code == 0, err
        assert ("Loaded" in out) == (start == "weights")


def test_rate_and_weight_decay_are_chosen_on_held_out_images(scfs, trained, photos):
    grid = ("--rates", 1e-6, 0.1, "--weight_decays", 0, 0.001, "--held_out", 0.3)
    code, out, err = scfs("finetune", trained, "--data", photos, *QUICK[:-2], *grid)
    assert code == 0, err
    scores = read_grid(trained / "finetune")
    assert len(scores) == 4
    assert "held-out images" in out
    [result] = read_results(trained)
    best = max(scores, key=scores.get)
    assert best == f"rate {result.details['rate']:g}, weight decay {result.details['weight_decay']:g}"


def test_a_fraction_is_drawn_from_each_class(photos):
    source = read_folder(photos)
    half = class_balanced(source, 0.5, seed=0)
    assert np.bincount(labels_of(half)).tolist() == [3, 3]
    assert np.bincount(labels_of(class_balanced(source, 0.01, seed=0))).tolist() == [1, 1]
    other = class_balanced(source, 0.5, seed=1)
    assert [half.name(i) for i in range(6)] != [other.name(i) for i in range(6)]


def test_a_list_names_the_images(scfs, trained, photos, tmp_path):
    for i, path in enumerate(sorted(photos.glob("*/*.jpg"))):
        path.rename(path.with_name(f"n{i:02d}.JPEG"))
    (tmp_path / "list.txt").write_text("n01.JPEG\nn07.JPEG\nn03.JPEG\n")
    source = read_folder(photos)
    listed = named_in(source, ["n01.JPEG", "n07.JPEG"], origin="a list")
    assert [(listed.label(i), listed.name(i)[-8:]) for i in range(2)] == [(0, "n01.JPEG"), (1, "n07.JPEG")]
    code, out, err = scfs("finetune", trained, "--data", photos, "--images", tmp_path / "list.txt", *ONE)
    assert code == 0, err
    assert "3 of them with labels" in out
    assert "have no labelled image" not in out
    [result] = read_results(trained)
    assert result.protocol.startswith("list.txt, ")
    (tmp_path / "list.txt").write_text("n01.JPEG\nn03.JPEG\n")  # both of one class
    _, out, _ = scfs("finetune", trained, "--data", photos, "--images", tmp_path / "list.txt", *ONE)
    assert "1 of 2 classes have no labelled image: they will not be learned." in " ".join(out.split())


def test_classes_of_all_sizes_count_equally():
    labels = torch.tensor([0] * 8 + [1] * 2)
    hits = torch.tensor([[True, True]] * 8 + [[False, True]] * 2)
    assert Accuracy.of(hits).top1 == pytest.approx(0.8)
    accuracy = Accuracy.per_class(hits, labels)
    assert (accuracy.top1, accuracy.top5) == (0.5, 1.0)
    mixed = torch.tensor([[True, True], [False, True]] * 5)
    low, high = Accuracy.per_class(mixed, labels).interval
    assert low < 0.5 < high


def test_bad_input_is_one_sentence(scfs, trained, photos, tmp_path):
    for words, sentence in (
        (("--images", tmp_path / "none.txt"), "Cannot read list"),
        (("--out", photos), "does not hold the same unfinished work"),
        (("--fraction", 0), "Setting 'fraction' cannot be '0'"),
    ):
        code, _, err = scfs("finetune", trained, "--data", photos, *ONE, *words)
        assert code == 2
        assert sentence in err
        assert err.count("\n") == 1
    (tmp_path / "list.txt").write_text("0.jpg\n")
    (tmp_path / "absent.txt").write_text("cats/0.jpg\ncats/9.jpg\n")
    for name, sentence in (("list", "which several images are called"), ("absent", "1 of the 2 images that")):
        code, _, err = scfs("finetune", trained, "--data", photos, *ONE, "--images", tmp_path / f"{name}.txt")
        assert code == 2
        assert sentence in err
    for extra in photos.glob("dogs/[1-5].jpg"):
        extra.unlink()
    with pytest.raises(UserError, match="Class 'dogs' has 1 image, of which no fraction"):
        class_balanced(read_folder(photos), 0.5, seed=0)


@pytest.mark.parametrize("recipe", sorted((RECIPES / "finetune").glob("*.toml")), ids=lambda path: path.stem)
def test_recipes_run(scfs, photos, tmp_path, recipe):
    settings = check(Finetune, read_toml(recipe))
    assert (settings.start == "scratch") == (recipe.stem == "supervised")
    small = ("--size", 32, "--workers", 0, "--batch_size", 4, "--rates", 0.1, "--weight_decays", 0)
    length = ("--steps", 2) if settings.steps else ("--epochs", 1)
    words = ("--data", photos, "--out", tmp_path / "out", *small, *length)
    code, out, err = scfs("finetune", "random:resnet10_half", recipe, *words)
    assert code == 0, err
    steps = 2 if settings.fraction == 1 else 1  # few labels, few steps
    assert f"step {steps}/{steps}" in out
    assert all(f"# {field}" in recipe.read_text() for field in ("command", "hardware", "result"))


def test_nothing_is_written_before_the_checks(scfs, trained, photos):
    for extra in photos.glob("dogs/[1-5].jpg"):
        extra.unlink()
    (photos / "val").mkdir()
    for name in ("cats", "dogs"):
        (photos / "train" / name).mkdir(parents=True)
        (photos / "val" / name).mkdir()
        for path in (photos / name).iterdir():
            path.rename(photos / "train" / name / path.name)
        Image.new("RGB", (20, 20)).save(photos / "val" / name / "v.jpg")
        (photos / name).rmdir()
    code, _, err = scfs("finetune", trained, "--data", photos, *QUICK, "--rates", 0.1, 0.2)
    assert code == 2
    assert "Class 'dogs' has a single labelled image" in err
    assert not (trained / "finetune").exists()
    code, _, err = scfs("finetune", trained, "--data", photos, *ONE)
    assert code == 0, err


def test_unreadable_images_are_named_once(scfs, trained, photos):
    (photos / "cats" / "0.jpg").write_bytes(b"no image")
    code, out, err = scfs("finetune", trained, "--data", photos, *ONE)
    assert code == 0, err
    assert out.count("Unreadable, replaced by the next image") == 1
    for path in photos.glob("cats/*.jpg"):
        path.write_bytes(b"no image")
    code, _, err = scfs("finetune", trained, "--data", photos, *ONE)
    assert code == 2
    assert "5 of 10 images cannot be read, more than the 4 allowed" in err


def test_the_metric_of_a_data_set_and_of_a_folder(scfs, trained, photos, monkeypatch):
    monkeypatch.chdir(photos.parent)
    photos.rename("pets")
    code, out, err = scfs("finetune", trained, "--data", "pets", *ONE)
    assert code == 0, err
    assert "mean per class" not in out
    base, photo = photos.parent / "published" / "oxford-iiit-pet", photos.parent / "pets" / "cats" / "0.jpg"
    (base / "images").mkdir(parents=True)
    (base / "annotations").mkdir()
    for split, names in {
        "trainval": ("Abyssinian_1", "pug_1"),
        "test": ("Abyssinian_2", "Abyssinian_3", "pug_2"),
    }.items():
        lines = [f"{name} {1 + name.startswith('pug')} 1 1\n" for name in names]
        (base / "annotations" / f"{split}.txt").write_text("".join(lines))
        for name in names:
            shutil.copy(photo, base / "images" / f"{name}.jpg")
    code, out, err = scfs("finetune", trained, "--data", f"pets:{base.parent}", *ONE)
    assert code == 0, err
    [metric] = [metric for metric in read_results(trained)[-1].metrics if metric.name == "mean per class"]
    assert (
        metric.value == 0.5
    )  # of the same photos: one class is right, though one of them has two thirds of the images


def test_a_probe_is_not_a_backbone(scfs, trained, photos):
    scfs("linear", trained, "--data", photos, "--cached", "true", "--epochs", 1, "--workers", 0)
    code, _, err = scfs("knn", trained / "linear.pt", "--data", photos)
    assert code == 2
    assert "linear.pt holds no backbone; give the checkpoint of a run" in err
    assert json.loads((trained / "results.json").read_text())


def test_a_rate_that_diverges_is_one_sentence_and_records_nothing(scfs, trained, photos):
    code, out, err = scfs("finetune", trained, "--data", photos, *QUICK, "--rates", 1e8)
    assert code == 2
    assert "became" in err
    assert "lower --rates" in err
    assert err.count("\n") == 1
    assert "top-1" not in out
    assert not (trained / "results.json").exists()
    assert not (trained / "finetune" / "last.pt").exists()


def test_a_rate_that_diverges_is_left_out_of_the_grid(scfs, trained, photos):
    grid = ("--rates", 0.1, 1e30, "--held_out", 0.3)
    code, out, err = scfs("finetune", trained, "--data", photos, *QUICK, *grid)
    assert code == 0, err
    assert "rate 1e+30, weight decay 0: left out. The" in out
    scores = read_grid(trained / "finetune")
    assert scores["rate 1e+30, weight decay 0"] is None
    assert scores["rate 0.1, weight decay 0"] is not None
    [result] = read_results(trained)
    assert result.details["rate"] == 0.1


def test_curves_are_written(scfs, trained, photos):
    before = (trained / "metrics.jsonl").read_bytes()
    code, _, err = scfs("finetune", trained, "--data", photos, *QUICK, "--rates", 0.01, 0.1, "--held_out", 0.3)
    assert code == 0, err
    for folder, steps in (("cell_0", [1, 2]), ("cell_1", [1, 2]), ("", [1, 2, 3, 4])):
        rows = read_metrics(trained / "finetune" / folder)
        assert [row["step"] for row in rows] == steps
        assert all({"loss", "lr", "epoch"} < row.keys() for row in rows)
        board = EventAccumulator(str(trained / "finetune" / folder / "tensorboard"))
        board.Reload()
        assert [event.step for event in board.Scalars("loss")] == steps
    assert (trained / "metrics.jsonl").read_bytes() == before
