"""The command table and what is made of it; people's habits on a command line."""

import subprocess
import sys
import types

import pytest
from conftest import read_flags

from scfs.commands import COMMANDS, SHELLS, Command, evaluation
from scfs.completion import script
from scfs.evaluate.knn.settings import Knn
from scfs.evaluate.linear.settings import Linear


@pytest.fixture
def called(monkeypatch):
    """Calls of jobs that are only noted down."""
    calls = []

    def note(*arguments, console, **keywords):
        calls.append((*arguments, keywords))
        console.print("an info line")
        console.print("a debug line", style="dim")
        console.print("a warning", style="yellow")

    for name in ("knn", "linear", "finetune"):
        monkeypatch.setattr(f"scfs.evaluate.{name}.job.{name}", note)
    monkeypatch.setattr("scfs.evaluate.predict.predict", note)
    monkeypatch.setattr(sys.modules["scfs.ablate.job"], "ablate", note)
    monkeypatch.setattr(sys.modules["scfs.pretraining.job"], "pretrain", note)
    return calls


@pytest.fixture(autouse=True)
def _jobs_are_imported():
    """So that they can be replaced."""
    import scfs.ablate.job
    import scfs.evaluate.predict
    import scfs.pretraining.command
    import scfs.pretraining.job  # noqa: F401


@pytest.mark.parametrize(
    ("words", "flags"),
    [
        (["--optim.epochs=3"], {"optim.epochs": "3"}),
        (["--optim.batch-size", "3"], {"optim.batch_size": "3"}),
        (["--init", "a.pth"], {"backbone.init": "a.pth"}),
        (["--init=a.pth"], {"backbone.init": "a.pth"}),
        (["--method.data_term"], {"method.data_term": True}),
        (["--method.data-term", "no"], {"method.data_term": False}),
        (["--method.data_term=False"], {"method.data_term": False}),
        (["--no-method.data-term"], {"method.data_term": False}),
        (["--method.no-data-term"], {"method.data_term": False}),
        (["--no-method.data_term", "false"], {"method.data_term": True}),
        (["--views.global_scale", "0.2", "1", "--seed", "2"], {"views.global_scale": ["0.2", "1"], "seed": "2"}),
        (["--data.classes="], {"data.classes": ""}),
        (["--optim.lr", "-1"], {"optim.lr": "-1"}),
    ],
)
def test_flags(words, flags):
    assert read_flags(words) == flags


@pytest.mark.parametrize(
    "words",
    [
        ["knn", "RUN", "--k", "10", "20", "--size=32"],
        ["knn", "--size", "32", "RUN", "--k", "10", "20"],
        ["knn", "--k", "10", "20", "--size", "32", "--", "RUN"],
        ["-v", "knn", "--k", "10", "20", "-q", "RUN", "--size=32"],
        ["-v", "knn", "--size=32", "--k", "10", "20", "--", "RUN"],
    ],
)
def test_targets_and_flags_come_in_any_order(scfs, called, words):
    assert scfs(*words)[0] == 0
    assert called == [("RUN", Knn(size=32, k=(10, 20)), {})]


@pytest.mark.parametrize(
    ("words", "cached"), [(["--cached"], True), (["--no-cached"], False), (["--cached", "1"], True)]
)
def test_bare_booleans_take_no_target(scfs, called, words, cached):
    assert scfs("linear", *words, "RUN")[0] == 0
    assert called == [("RUN", Linear(cached=cached), {})]


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["knn", "--k", "10", "RUN"], ["needs RUN_OR_WEIGHTS", "--k takes every value", "after --"]),
        (["linear", "RUN", "--cached=maybe"], ["'cached' cannot be 'maybe'", "true or false"]),
        (["linear", "RUN", "--cached", "--no-cached"], ["'cached' is given twice"]),
        (["finetune", "RUN", "--from", "scratch", "--start", "scratch"], ["'start' is given twice"]),
        (["knn", "RUN", "-x"], ["Unknown flag '-x'", "scfs knn --help"]),
        (["compare", "RUN", "--k", "3"], ["Unknown flag '--k'"]),
        (["predict", "RUN"], ["needs a folder of images"]),
        (["knn", "a", "b"], ["Unexpected 'b'", "scfs knn RUN_OR_WEIGHTS"]),
        (["ablate", "colours", "quickstart"], ["TABLE cannot be 'colours'", "modes"]),
        (["ablate", "modes", "quickstart", "--seed", "1"], ["'seed'", "'seeds'"]),
        (["bench"], ["bench step", "bench growth"]),
        (["completion", "tcsh"], ["'tcsh'", "zsh"]),
        (["pretrain", "quickstart", "--resume", "--dry-run"], ["omit --resume"]),
    ],
)
def test_mistakes(scfs, called, words, parts):
    code, out, err = scfs(*words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    for part in parts:
        assert part in err
    assert not called


def test_flags_of_recipes_and_of_the_command_go_apart(scfs, called):
    words = ["ablate", "modes", "quickstart_paper", "cpu_imagenette", "--seeds", "3", "--optim.epochs=2"]
    assert scfs(*words)[0] == 0
    [(table, configs, settings, _)] = called
    assert (table, settings.seeds, [config.optim.epochs for config in configs]) == ("modes", (3,), [2, 2])


def test_a_recipe_lies_below_the_flags(scfs, called):
    assert scfs("finetune", "RUN", "semi_supervised_1", "--epochs", "3", "--from=scratch")[0] == 0
    [(target, settings, _)] = called
    assert (target, settings.fraction, settings.epochs, settings.start) == ("RUN", 0.01, 3, "scratch")


def test_how_much_is_said(scfs, called):
    said = {word: scfs("knn", "RUN", *word.split())[1].splitlines() for word in ("", "-v", "-q", "--quiet")}
    assert said[""] == ["an info line", "a warning"]
    assert said["-v"] == ["an info line", "a debug line", "a warning"]
    assert said["-q"] == said["--quiet"] == ["a warning"]
    assert scfs("-q", "knn", "RUN")[1].splitlines() == ["a warning"]
    assert len(called) == 5


def test_help_names_what_is_not_a_setting(scfs):
    out = scfs("pretrain", "-h")[1]
    for flag in (
        "--resume",
        "--dry-run",
        "--init",
        "--verbose",
        "--quiet",
        "--method.data_term, --no-method.data_term",
    ):
        assert flag in out
    assert scfs("help", "pretrain")[1] == out
    assert scfs("help", "bench", "step")[1] == scfs("bench", "step", "--help")[1]
    assert scfs("help")[1] == scfs("--help")[1]
    assert scfs("-V") == scfs("--version")


def test_a_new_command_is_a_row(scfs, monkeypatch, tmp_path):
    settings, job = types.ModuleType("scfs.evaluate.detect.settings"), types.ModuleType("scfs.evaluate.detect.job")
    settings.Detect = type("Detect", (Knn,), {"__doc__": "How boxes are scored."})
    job.detect = lambda target, settings, console: console.print(f"{target} {settings.size}")
    monkeypatch.setitem(sys.modules, settings.__name__, settings)
    monkeypatch.setitem(sys.modules, job.__name__, job)
    monkeypatch.setitem(COMMANDS, "detect", evaluation("detect", "Score a backbone by its boxes."))
    assert scfs("detect", "--size", "64", tmp_path)[1] == f"{tmp_path} 64\n"
    assert "How boxes are scored." in scfs("detect", "--help")[1]
    assert "Score a backbone by its boxes." in scfs("--help")[1]
    assert "detect" in script("bash")
    assert "Did you mean 'detect'?" in scfs("detekt")[2]


def test_every_row_can_be_loaded():
    from scfs.cli import _load

    for command in COMMANDS.values():
        assert isinstance(command, Command)
        for path in filter(None, (command.settings, command.recipe_settings, command.job)):
            assert callable(_load(path)), path


def complete(folder, *words):
    """What bash offers for the last word."""
    quoted = " ".join(f"'{word}'" for word in words)
    code = f'{script("bash")}\nCOMP_WORDS=(scfs {quoted}); COMP_CWORD={len(words)}; _scfs; echo "${{COMPREPLY[@]}}"'
    return subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True, cwd=folder).stdout.split()


def test_bash_completes(tmp_path):
    assert complete(tmp_path, "pre") == ["pretrain", "predict"]
    assert complete(tmp_path, "pretrain", "quick") == ["quickstart", "quickstart_paper"]
    assert complete(tmp_path, "pretrain", "quickstart", "--optim.w") == [
        "--optim.warmup_epochs",
        "--optim.weight_decay",
    ]
    assert complete(tmp_path, "linear", "RUN", "--no-") == ["--no-cached"]
    assert complete(tmp_path, "bench", "m") == ["memory"]
    (tmp_path / "mine.toml").touch()
    assert complete(tmp_path, "pretrain", "mi") == ["mine.toml"]
    assert complete(tmp_path, "bench", "memory", "--rel") == ["--released"]
    assert complete(tmp_path, "finetune", "RUN", "semi") == ["semi_supervised_1", "semi_supervised_10"]


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_knows_every_command(scfs, shell):
    code, out, _ = scfs("completion", shell)
    assert code == 0
    for command in COMMANDS:
        assert all(word in out for word in command.split())
    assert "method.data_term" in out
    assert "own_photos" in out
