"""Training as a whole: every mode, the files of a run, what it prints and refuses."""

import io
import json

import pytest
import torch
from rich.console import Console
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tiny_runs import rows, train

from scfs.console import PlainConsole
from scfs.pretraining.build import build_method
from scfs.pretraining.prepare import prepare
from scfs.pretraining.step import schedule_at
from scfs.runs import checkpoint

CONTRASTS = ["dino-no-multicrop", "dino", "dino-multilayer", "scfs", "roi-crop", "scfs-no-multicrop"]


@pytest.mark.parametrize("variant", ["paper", "released"])
@pytest.mark.parametrize("contrast", CONTRASTS)
def test_every_mode_trains(tiny, tmp_path, contrast, variant):
    run = train(tiny(method__contrast=contrast, method__variant=variant, optim__epochs=1), tmp_path)
    found = rows(run)
    assert [row["step"] for row in found] == [1, 2, 3]
    terms = [value for name, value in found[-1].items() if name.startswith("loss/")]
    assert found[-1]["loss"] == pytest.approx(sum(terms), rel=1e-5)


@pytest.mark.parametrize(
    "flags",
    [
        {"method__contrast": "dino", "views__num_local_views": 0},
        {"method__data_term": "false"},
        {"method__contrast": "scfs-no-multicrop", "method__data_term": "false"},
        {"backbone__layers": "layer3"},
        {"backbone__layers": ["layer1", "layer4"]},
        {"views__num_local_views": 5},
        {"optim__batch_size": 1},
        {"optim__name": "adamw", "optim__final_weight_decay": 0.4, "optim__clip": "total"},
        {"method__batch_norm": "true", "optim__clip": "off", "run__channels_last": "false"},
        {"backbone__name": "vit_tiny_patch16_224", "backbone__drop_path": 0.1, "views__local_size": 32},
        {"method__out_dim": "auto", "method__momentum": "auto", "method__teacher_temp": "auto"},
    ],
)
def test_combinations_of_settings_train(tiny, tmp_path, flags):
    run = train(tiny(optim__epochs=1, **flags), tmp_path)
    assert all(0 < row["loss"] < 100 for row in rows(run))


def test_a_run_ends_with_a_summary_and_the_next_commands(scfs, tiny_recipe, photos, tmp_path):
    run = tmp_path / "my run"
    words = ["pretrain", tiny_recipe, "--run.folder", run, "--run.knn_every_epochs", 1]
    code, out, _ = scfs(*words)
    assert code == 0
    lines = out.splitlines()
    closing = lines[-6:]
    scores = [row["knn_top1"] for row in rows(run) if "knn_top1" in row]
    first, last = (f"{100 * score:.1f}%" for score in (scores[0], scores[-1]))
    assert closing[0].startswith(f"k-NN top-1: {first} at the start, {last} after training")
    assert closing[1].split(maxsplit=2) == ["run", "folder", str(run)]
    assert "for 6 steps" in closing[2]
    assert closing[3].endswith(f"scfs report '{run}'")
    assert closing[4].endswith(f"scfs knn '{run}'")
    assert closing[5].endswith(f"scfs export '{run}' '{run}/backbone.safetensors'")
    flat = ["--data.source", photos / "cats", "--run.folder", tmp_path / "flat"]
    assert f"scfs knn {tmp_path / 'flat'} --data FOLDER" in scfs(*words[:2], *flat)[1]


@pytest.mark.parametrize("channels_last", [True, False])
def test_activations_have_the_memory_layout_of_the_settings(tiny, channels_last):
    run = prepare(tiny(run__channels_last=channels_last), torch.device("cpu"), Console(quiet=True))
    seen = []
    convolutions = [module for module in run.learner.method.modules() if isinstance(module, torch.nn.Conv2d)]
    for module in convolutions[:4]:
        module.register_forward_hook(lambda _, inputs, output: seen.extend([*inputs, output]))
    run.learner.step(next(run.batches(0)), 0)
    layout = torch.channels_last if channels_last else torch.contiguous_format
    assert seen
    assert all(maps.is_contiguous(memory_format=layout) for maps in seen)


def test_a_seed_repeats_a_run_and_another_changes_it(tiny, tmp_path):
    first, again, other = (rows(train(tiny(seed=s), tmp_path, n)) for s, n in ((0, "a"), (0, "b"), (1, "c")))
    assert first == again
    assert first != other


def test_files_of_the_run_folder(tiny, tmp_path):
    run = train(tiny(run__knn_every_epochs=1, run__keep_every_epochs=1), tmp_path)
    names = {path.name for path in run.iterdir()}
    assert names == {
        *("settings.toml", "environment.json", "metrics.jsonl", "tensorboard", "last.pt", "auto.json"),
        *("epoch_0001.pt", "epoch_0002.pt", "last.previous.pt", "checkpoints.json", ".lock"),
    }
    assert [row["step"] for row in rows(run) if "knn_top1" in row] == [0, 3, 6]
    saved = checkpoint.load(run / "last.pt")
    assert saved["step"] == 6
    assert "center.value" in saved["method"]
    assert {f"search_centers.{i}.value" for i in range(3)} <= saved["method"].keys()
    assert json.loads((run / "environment.json").read_text())[0]["packages"]["torch"] == torch.__version__.split("+")[0]


def test_tensorboard_has_the_same_values(tiny, tmp_path):
    run = train(tiny(run__knn_every_epochs=2), tmp_path)
    board = EventAccumulator(str(run / "tensorboard"))
    board.Reload()
    expected = {}
    for row in rows(run, timed=True):
        for name, value in row.items():
            if name not in ("step", "metrics"):
                expected.setdefault(name, []).append((row["step"], value))
    assert set(board.Tags()["scalars"]) == set(expected)
    for name, points in expected.items():
        found = [(event.step, event.value) for event in board.Scalars(name)]
        assert [step for step, _ in found] == [step for step, _ in points]
        assert [value for _, value in found] == pytest.approx([value for _, value in points], rel=1e-5)


def test_the_settings_of_a_run_reproduce_it(scfs, tiny, tmp_path, monkeypatch):
    run = train(tiny(method__out_dim="auto"), tmp_path)
    monkeypatch.chdir(tmp_path)
    assert scfs("pretrain", run)[0] == 0
    assert rows(tmp_path / "runs" / "run") == rows(run)


def test_the_last_layer_is_frozen_at_first(tiny, tmp_path):
    frozen = tiny(method__freeze_last_layer_epochs=2, optim__epochs=2)
    run = train(frozen, tmp_path)
    torch.manual_seed(frozen.seed)
    start = build_method(frozen).state_dict()
    end = checkpoint.load(run / "last.pt")["method"]
    assert torch.equal(start["student.head.last.weight"], end["student.head.last.weight"])
    assert not torch.equal(start["student.head.mlp.0.weight"], end["student.head.mlp.0.weight"])
    thawed = checkpoint.load(train(tiny(), tmp_path, "thawed") / "last.pt")["method"]
    assert not torch.equal(start["student.head.last.weight"], thawed["student.head.last.weight"])


def test_a_loss_that_is_not_finite_stops_the_run(scfs, tiny_recipe, tmp_path):
    code, _, err = scfs("pretrain", tiny_recipe, "--run.folder", tmp_path / "run", "--optim.lr", "1e30")
    assert code == 2
    assert "The loss (its term 'view') became nan at step 1" in err
    assert "optim.lr" in err


def test_a_collapse_is_reported(scfs, tiny_recipe, tmp_path):
    """At such temperatures every head's output is uniform."""
    flags = ["--method.teacher_temp", 50, "--method.teacher_temp_start", 50, "--method.student_temp", 50]
    code, out, _ = scfs("pretrain", tiny_recipe, "--run.folder", tmp_path / "run", *flags, "--optim.epochs", 12)
    assert code == 0
    for term in ("view", "search/layer2", "search/layer3", "search/layer4"):
        assert out.count(f"the head of '{term}' is flat: the teacher spreads its probability over 100% of") == 1
    assert "Lower method.teacher_temp" in out
    stop = ["--run.on_collapse", "stop", "--optim.epochs", 12, "--run.folder", tmp_path / "stopped"]
    code, _, err = scfs("pretrain", tiny_recipe, *flags, *stop)
    assert code == 2
    assert err.startswith("scfs: Stopped at step 30 (run.on_collapse): the head of 'view' is flat")
    assert err.count("\n") == 1
    assert [row["step"] for row in rows(tmp_path / "stopped")] == list(range(1, 30))
    assert checkpoint.load(tmp_path / "stopped" / "last.pt")["step"] == 27


def test_training_on_a_folder_of_photos(scfs, tiny_recipe, photos, tmp_path):
    words = ["pretrain", tiny_recipe, "--data.source", photos, "--run.knn_every_epochs", 1]
    code, out, _ = scfs(*words, "--run.folder", tmp_path / "run")
    assert code == 0
    assert "k-NN" in out
    assert "run folder" in out
    flat = ["pretrain", tiny_recipe, "--data.source", photos / "cats", "--run.folder", tmp_path / "flat"]
    assert "have no labels" in scfs(*flat, "--run.knn_every_epochs", 1)[1]


@pytest.mark.parametrize(
    ("name", "optimizer", "hinted"),
    [
        ("vit_tiny_patch16_224", "sgd", True),
        ("vit_tiny_patch16_224", "adamw", False),
        ("resnet10_half", "sgd", False),
    ],
)
def test_a_vit_under_sgd_gets_a_hint(tiny, name, optimizer, hinted):
    config = tiny(backbone__name=name, optim__name=optimizer, views__local_size=32)
    console = PlainConsole(record=True, file=io.StringIO())
    prepare(config, torch.device("cpu"), console)
    assert ("AdamW" in console.export_text()) == hinted


def test_schedules_are_the_papers(tiny):
    config = tiny(
        optim__epochs=200,
        optim__warmup_epochs=10,
        optim__batch_size=256,
        optim__final_lr=0.0048,
        method__momentum=0.996,
    )
    first, warm, last = (schedule_at(config, step, 100) for step in (0, 1000, 19_999))
    assert first.lr < 0.0002
    assert (warm.lr, last.lr) == (pytest.approx(0.1), pytest.approx(0.0048))
    assert (first.momentum, last.momentum) == (pytest.approx(0.996), 1.0)
    assert first.teacher_temp == 0.04
    assert schedule_at(config, 2500, 100).teacher_temp == pytest.approx(0.055)
    assert schedule_at(config, 5000, 100).teacher_temp == 0.07
    assert (schedule_at(config, 99, 100).last_layer_frozen, schedule_at(config, 100, 100).last_layer_frozen) == (
        True,
        False,
    )
    assert first.weight_decay == last.weight_decay == 1e-4


def test_folders_that_are_not_used_are_named(scfs, tiny_recipe, photos, tmp_path):
    (photos / "cats").rename(photos / "train")
    (photos / "dogs").rename(photos / "unlabeled")
    words = ("pretrain", tiny_recipe, "--data.source", photos, "--run.folder", tmp_path / "run", "--optim.epochs", 1)
    code, out, err = scfs(*words)
    assert code == 0, err
    assert "Folders beside train that are not used: unlabeled." in out
