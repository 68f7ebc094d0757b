"""Every mistake gets one sentence and exit code 2, and leaves nothing behind."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest


def refused(answer, *parts):
    code, out, err = answer
    assert code == 2
    assert err.count("\n") == 1, err  # one line
    assert "Traceback" not in err + out
    for part in parts:
        assert part in err
    return True


@pytest.mark.parametrize(
    ("flags", "parts"),
    [
        (["--optim.warmup_epoch", "1"], ["'optim.warmup_epoch'", "Did you mean 'optim.warmup_epochs'?"]),
        (["--batch_size", "4"], ["'batch_size'", "'optim.batch_size'"]),
        (["--xyzzy", "4"], ["Unknown setting 'xyzzy'"]),
        (["--optim.epochs", "many"], ["'optim.epochs'", "'many'", "valid integer"]),
        (["--method.out_dim", "big"], ["'method.out_dim'", "'big'", "valid integer or 'auto'"]),
        (["--method.out_dim", "-4"], ["'method.out_dim'", "greater than 0"]),
        (["--method.contrast", "moco"], ["'method.contrast'", "'moco'", "'roi-crop'"]),
        (["--views.global_scale", "0.5"], ["'views.global_scale'"]),
        (["--views.global_scale", "0.1,1"], ["should be a list of values or 'auto'"]),
        (["--views.global_scale", "0.1", "0.2", "1"], ["should be at most 2 values or 'auto'"]),
        (["--views.global_scale", "1", "0.5"], ["views.global_scale", "must be ascending"]),
        (["--optim.lr", "nan"], ["'optim.lr'"]),
        (["--optim.lr"], ["'optim.lr' has no value"]),
        (["--seed", "1", "--seed", "2"], ["'seed' is given twice"]),
        (["stray"], ["Unexpected 'stray'"]),
        (["--views.num_local_views", "0"], ["'scfs' needs local views", "num_local_views is 0"]),
        (
            ["--method.contrast", "dino-no-multicrop", "--views.num_local_views", "3"],
            ["views.num_local_views 3 has no effect", "'dino-no-multicrop' has no local views"],
        ),
        (["--method.contrast", "dino", "--method.data_term", "false"], ["data_term = false leaves no loss"]),
        (["--method.data_term", "false", "--backbone.layers", "layer2"], ["add 'layer4' to backbone.layers"]),
        (["--method.data_term", "false", "--backbone.name", "efficientnet_b0"], ["never train 'net.conv_head.weight'"]),
        (["--optim.accumulate", "4", "--optim.batch_size", "4", "--views.num_local_views", "1"], ["optim.accumulate"]),
        (["--optim.batch_size", "1", "--views.num_local_views", "1"], ["raise optim.batch_size"]),
        (["--method.objective", "coding-rate"], ["method.out_dim 32", "'coding-rate' has none", "omit it"]),
        (["--method.centering", "sinkhorn", "--method.center_momentum", "0.5"], ["center_momentum 0.5", "'sinkhorn'"]),
        (
            ["--method.centering", "sinkhorn", "--method.variant", "released"],
            ["method.variant 'released'", "'sinkhorn'"],
        ),
        (
            ["--method.objective", "vicreg", "--method.out_dim", "auto", "--method.centering", "sinkhorn"],
            ["method.centering 'sinkhorn'", "not to 'vicreg'"],
        ),
        (
            ["--method.objective", "info-nce", "--method.out_dim", "auto", "--method.batch_norm", "true"],
            ["method.batch_norm", "'info-nce' always has batch norms", "omit it"],
        ),
        (["--run.compile", "true", "--run.gradient_checkpointing", "true"], ["do not work together", "omit one"]),
        (["--method.targets", "student"], ["leaves objective dino without a teacher", "'info-nce'"]),
        (
            ["--method.objective=info-nce", "--method.out_dim=auto", "--method.targets=student", "--method.momentum=1"],
            ["method.momentum = 1 keeps the teacher", "lower it"],
        ),
        (
            ["--method.objective", "info-nce", "--method.out_dim", "auto", "--optim.accumulate", "4"],
            ["two or more at a time", "optim.accumulate"],
        ),
        (["--method.objective", "simclr"], ["'method.objective'", "'info-nce'"]),
        (["--backbone.layers", "layer9"], ["no layer 'layer9'", "layer4"]),
        (["--backbone.layers", "layer3", "layer2"], ["from shallow to deep"]),
        (["--backbone.name", "resnet5000"], ["timm has no model 'resnet5000'"]),
        (["--optim.batch_size", "13"], ["batch_size 13", "12 images"]),
        (["--optim.final_lr", "3"], ["optim.final_lr 3 is above the peak"]),
        (["--optim.warmup_epochs", "3"], ["optim.warmup_epochs 3 exceeds"]),
        (["--data.source", "nowhere"], ["No folder at nowhere"]),
        (["--data.source", "scenes:5"], ["scenes:TRAIN,VAL"]),
        (["--run.device", "cuda:99"], ["Device 'cuda:99' cannot be used"]),
        (["--run.device", "toaster"], ["Device 'toaster' cannot be used"]),
        (["--resume"], ["--resume needs a run folder"]),
        (["--seed", str(10**23)], ["'seed'", "less than 9223372036854775808"]),
        (["--optim.epochs", str(10**20)], ["'optim.epochs'", "less than or equal to 1000000"]),
        (["--method.hidden_dim", str(10**20)], ["'method.hidden_dim'", "less than 2147483648"]),
        (["--views.local_size", "1"], ["'views.local_size'", "greater than or equal to 8"]),
        (["--views.global_size", "3"], ["'views.global_size'", "greater than or equal to 8"]),
        (["--run.device", "meta"], ["Device 'meta' cannot be used: its tensors have no values; use cpu or auto"]),
        (["--run.device", "vulkan"], ["Device 'vulkan' cannot be used: this PyTorch does not support it; use cpu"]),
        (["--run.device", "hpu"], ["Device 'hpu' cannot be used: this PyTorch does not support it; use cpu"]),
        (["--run.folder", "x" * 300], ["Cannot create run folder xxx", "File name too long"]),
        (["--data.source", "x" * 300], ["xxx: File name too long; choose a shorter name"]),
        (["--run.folder", "/dev/null"], ["/dev/null is not a folder; choose another --run.folder"]),
        (["--run.folder", "/dev/null", "--resume"], ["/dev/null is not a folder; choose another --run.folder"]),
    ],
)
def test_pretrain_refuses(scfs, tiny_recipe, tmp_path, monkeypatch, flags, parts):
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    assert refused(scfs("pretrain", tiny_recipe, *flags), *parts)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("epochs = = 3", ["is not valid TOML", "line 1"]),
        ("[optim]\nepoch = 3", ["Unknown setting 'optim.epoch'", "Did you mean 'optim.epochs'?"]),
        ("[optim]\nepochs = 'three'", ["'optim.epochs'", "'three'"]),
        ("optim = 3", ["optim"]),
        ("[views]\nglobal_scale = [0.5]", ["'views.global_scale'", "should be one more value or 'auto'"]),
        ("[views]\nnum_local_views = 0", ["needs local views"]),
        ("", ["data.source is not set"]),
    ],
)
def test_recipe_mistakes(scfs, tmp_path, monkeypatch, text, parts):
    monkeypatch.chdir(tmp_path)
    recipe = tmp_path / "mine.toml"
    recipe.write_text(text)
    assert refused(scfs("pretrain", recipe), *parts)
    assert not (tmp_path / "runs").exists()


def test_recipe_that_is_not_text(scfs, tmp_path):
    recipe = tmp_path / "mine.toml"
    recipe.write_bytes(b"\xff\xfe\x00")
    assert refused(scfs("pretrain", recipe), "is not valid TOML: it is not text")


@pytest.mark.parametrize("content", [b"a.jpg\nb.jpg\n", b"\xff\xd8\xff"])
def test_a_file_that_is_not_a_recipe(scfs, tmp_path, content):
    (tmp_path / "list.txt").write_bytes(content)
    assert refused(scfs("pretrain", tmp_path / "list.txt"), "is not a recipe", "give images as --data.source")


@pytest.mark.parametrize("words", [[], ["missing.toml"]])
def test_no_recipe(scfs, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    assert refused(scfs("pretrain", *words), "recipe")


def test_unknown_command(scfs):
    assert refused(scfs("pretrian"), "'pretrian'", "pretrain")


def test_empty_folder(scfs, tiny_recipe, tmp_path):
    (tmp_path / "empty").mkdir()
    answer = scfs("pretrain", tiny_recipe, "--data.source", tmp_path / "empty", "--run.folder", tmp_path / "run")
    assert refused(answer, "No images under", ".jpg")
    assert not (tmp_path / "run").exists()


def test_existing_run_folder_is_left_alone(scfs, tiny_recipe, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    (run / "keep.txt").write_text("mine")
    assert refused(
        scfs("pretrain", tiny_recipe, "--run.folder", run), "exists", "it is not a run", "choose another --run.folder"
    )
    assert [path.name for path in run.iterdir()] == ["keep.txt"]


def test_unwritable_output(scfs, tiny_recipe, tmp_path):
    (tmp_path / "file").write_text("a file, not a folder")
    answer = scfs("pretrain", tiny_recipe, "--run.folder", tmp_path / "file" / "run")
    assert refused(answer, "Cannot create run folder")


def test_a_full_disk_is_one_sentence(scfs, monkeypatch):
    def fill(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device", "runs/compare.md")

    monkeypatch.setattr("scfs.evaluate.compare.compare", fill)
    code, _, err = scfs("compare", "a")
    assert code == 2
    assert err.startswith("scfs: Cannot read or write runs/compare.md: No space left on device; free some space")
    assert err.count("\n") == 1


def test_resume_with_another_backbone(scfs, tiny_recipe, tmp_path):
    run = tmp_path / "run"
    assert scfs("pretrain", tiny_recipe, "--run.folder", run, "--optim.epochs", 1)[0] == 0
    before = (run / "last.pt").read_bytes()
    answer = scfs("pretrain", run, "--resume", "--backbone.name", "resnet18")
    assert refused(answer, "backbone.name = 'resnet10_half', not 'resnet18'")
    assert (run / "last.pt").read_bytes() == before


@pytest.mark.parametrize(
    "words",
    [
        *(["pretrain", ""], ["knn", ""], ["report", ""], ["compare", "a", ""], ["recipes", ""], ["help", ""]),
        *(["embed", "a", "", "b.npy"], ["predict", "a", "b", ""], ["export", "a", ""], ["ablate", "modes", ""]),
    ],
)
def test_an_empty_name(scfs, photos, monkeypatch, words):
    """As of a shell variable that is not set: the current folder is not meant."""
    monkeypatch.chdir(photos)
    assert refused(scfs(*words), "is empty; give ")
    assert sorted(path.name for path in photos.iterdir()) == ["cats", "dogs"]


@pytest.mark.parametrize("words", [[], ["a", "b"], ["nowhere"]])
def test_report_refuses(scfs, words):
    assert refused(scfs("report", *words))


def test_the_installed_command_exits_with_2(tmp_path: Path):
    words = [sys.executable, "-m", "scfs", "pretrain", "missing.toml"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, env=os.environ)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == "scfs: No recipe at missing.toml; scfs recipes lists the built-in ones.\n"
