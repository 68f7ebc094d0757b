"""What is printed before a run starts."""

import io

import pytest
import torch

from scfs.config import Config
from scfs.console import PlainConsole
from scfs.pretraining.auto import resolve
from scfs.pretraining.opening import print_line, print_opening
from scfs.recipe import Change, check, read_toml
from scfs.recipes.catalogue import recipe_path


def opening(out):
    """The lines before training."""
    lines = out.splitlines()
    return lines[: next(i for i, line in enumerate(lines) if line.startswith(("epoch ", "No online")))]


def test_a_new_run(scfs, tiny_recipe, tmp_path):
    run = tmp_path / "run"
    flags = ("--optim.epochs", 1, "--optim.batch_size", 4, "--views.local_size", 24, "--method.momentum", "auto")
    code, out, err = scfs("pretrain", tiny_recipe, *flags, "--run.folder", run)
    assert code == 0, err
    title, *lines, environment, settings = opening(out)
    assert title == f"tiny: run folder {run}, 12 images, 3 steps (3 per epoch), cpu"
    assert lines[:3] == [
        "changed: optim.epochs = 1 (recipe: 2)",  # not the batch size, which is the recipe's
        "changed: views.local_size = 24 (recipe: 16)",
        "changed: method.momentum = auto (recipe: 0.9)",
    ]
    assert lines[3] == "auto: method.momentum = 0.9 (the teacher averages over all 3 steps; the paper's over 250)"
    assert all(line.startswith("auto: ") for line in lines[3:])
    assert environment.startswith("environment: scfs ")
    assert f"torch {torch.__version__.partition('+')[0]}" in environment
    assert "cpu" in environment
    assert "1 threads" in environment
    assert settings == f"all settings: {run / 'settings.toml'}"


def test_a_resumed_run_continues_and_differs_from_no_recipe(scfs, tiny_recipe, tmp_path):
    run = tmp_path / "run"
    words = ("pretrain", tiny_recipe, "--run.folder", run, "--optim.epochs", 1, "--run.checkpoint_every_steps", 2)
    assert scfs(*words)[0] == 0
    state = torch.load(run / "last.pt", weights_only=True)
    torch.save({**state, "step": 2}, run / "last.pt")
    (run / "checkpoints.json").unlink()
    code, out, err = scfs("pretrain", run, "--resume", "--run.log_every_steps", 2)
    assert code == 0, err
    title, *lines = opening(out)
    assert title == f"run: run folder {run}, 12 images, continues from step 2 of 3, cpu"
    assert [line.partition(":")[0] for line in lines] == ["environment", "all settings"]


@pytest.mark.parametrize("recipe", ["quickstart", "own_photos"])
def test_the_opening_of_the_small_recipes_is_short(recipe):
    config, choices = resolve(check(Config, read_toml(recipe_path(recipe, "pretrain"))), 5000, torch.device("cpu"))
    console = PlainConsole(file=io.StringIO(), width=100, force_terminal=True, no_color=True)
    facts = {"environment": "scfs, torch", "all settings": f"runs/{recipe}/settings.toml"}
    print_opening(recipe, config, console, changes=[Change("seed", 1, 0)] * 3, choices=choices, facts=facts)
    lines = console.file.getvalue().splitlines()
    resolved = [line for line in lines if line.startswith("\x1b[2m")]  # only with --verbose
    assert 6 < len(lines) - len(resolved) <= 15
    assert max(len(line) for line in lines if line not in resolved) <= 100


def test_no_word_is_broken_in_a_terminal():
    line = f"tiny: run folder /photos/{'a-long-name-' * 5}, 12 images, continues from step 2 of 3, cpu"
    for is_terminal, expected in ((False, 1), (True, 4)):
        console = PlainConsole(file=io.StringIO(), width=40, force_terminal=is_terminal, no_color=True)
        print_line(line, console)
        lines = console.file.getvalue().splitlines()
        assert len(lines) == expected
        assert " ".join(lines).split() == line.split()
        assert not is_terminal or max(len(each) for each in lines if "/photos" not in each) <= 40
