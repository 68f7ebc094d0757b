import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before torch: on busy cores, spinning threads take minutes

import multiprocessing
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from browsing import browser, open_page  # noqa: F401
from PIL import Image

from scfs.cli import main
from scfs.commands import COMMANDS
from scfs.config import Config
from scfs.flags import CommandParser
from scfs.recipe import check
from scfs.training import cpu

if "START_METHOD" in os.environ:  # of loader workers: spawn, as on macOS and Windows
    multiprocessing.set_start_method(os.environ["START_METHOD"])

REPO = Path(__file__).parent.parent
RECIPES = REPO / "scfs" / "recipes"

# A run that takes a second: 12 scenes, the reduced ResNet, tiny heads.
TINY: dict[str, dict[str, Any]] = {
    "data": {"source": "scenes:12,8", "workers": 0},
    "backbone": {"name": "resnet10_half"},
    "method": {
        "out_dim": 32,
        "hidden_dim": 32,
        "bottleneck_dim": 16,
        "search_out_dim": 16,
        "search_hidden_dim": 32,
        "search_bottleneck_dim": 8,
        "momentum": 0.9,
    },
    "views": {"global_size": 32, "local_size": 16, "num_local_views": 2},
    "optim": {"epochs": 2, "batch_size": 4, "final_lr": 0.0001, "warmup_epochs": 1},
    "run": {"log_every_steps": 1, "knn_every_epochs": 0, "checkpoint_every_steps": 3, "device": "cpu", "threads": 1},
}


def read_flags(args: Sequence[str]) -> dict[str, Any]:
    """Flags of `scfs pretrain` as settings by full name."""
    return CommandParser(COMMANDS["pretrain"], Config()).read(args).flags


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def _one_thread_per_job() -> Iterator[None]:
    """Jobs use all cores, but pytest runs a process for each core."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cpu, "num_cores", lambda: 1)
        yield


@pytest.fixture(autouse=True, scope="session")
def _nothing_left_behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Indexes and pictures of dry runs go where pytest clears up."""
    folder = tmp_path_factory.mktemp("elsewhere")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SCFS_CACHE", str(folder))
        patch.setattr(tempfile, "tempdir", str(folder))
        yield


@pytest.fixture
def steps_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[type], list[int]]:
    """Record the numbers of the steps that a class of learners takes from now on."""

    def record(learner: Any) -> list[int]:
        steps, real = list[int](), learner.step

        def step(self: Any, batch: Any, number: int) -> Any:
            steps.append(number)
            return real(self, batch, number)

        monkeypatch.setattr(learner, "step", step)
        return steps

    return record


@pytest.fixture
def tiny() -> Callable[..., Config]:
    """Settings of a tiny run, with flags on top."""

    def build(**flags: Any) -> Config:
        return check(Config, TINY, {name.replace("__", "."): value for name, value in flags.items()})

    return build


def write_tiny_recipe(folder: Path) -> Path:
    import tomli_w

    path = folder / "tiny.toml"
    path.write_text(tomli_w.dumps(TINY), encoding="utf-8")
    return path


@pytest.fixture
def tiny_recipe(tmp_path: Path) -> Path:
    """The tiny run as a recipe file."""
    return write_tiny_recipe(tmp_path)


@pytest.fixture(scope="session")
def trained_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("once")
    assert main(["pretrain", str(write_tiny_recipe(folder)), "--run.folder", str(folder / "trained")]) == 0
    return folder / "trained"


@pytest.fixture
def trained(trained_once: Path, tmp_path: Path) -> Path:
    """The folder of a finished tiny run, for this test alone."""
    return shutil.copytree(trained_once, tmp_path / "trained")


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Two class folders of six small photos each."""
    root = tmp_path / "photos"
    rng = np.random.default_rng(0)
    for name in ("cats", "dogs"):
        (root / name).mkdir(parents=True)
        for i in range(6):
            pixels = rng.integers(0, 256, (40, 48, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(root / name / f"{i}.jpg")
    return root


@pytest.fixture
def scfs(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run the command line in this process: (exit code, standard output, standard error)."""

    def call(*args: object) -> tuple[int, str, str]:
        code = main([str(arg) for arg in args])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def first_line(tmp_path: Path) -> Callable[..., tuple[str, int, str]]:
    """Run the command in a shell with its output piped to head: the first line, its exit code, and standard error."""

    def call(*args: object) -> tuple[str, int, str]:
        command, code = shlex.join([sys.executable, "-m", "scfs", *map(str, args)]), tmp_path / "code"
        words = f"{{ {command}; echo $? > {shlex.quote(str(code))}; }} | head -n 1"
        done = subprocess.run(words, shell=True, capture_output=True, text=True)
        return done.stdout, int(code.read_text()), done.stderr

    return call
