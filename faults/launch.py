"""Starts small training runs as users do, in processes of their own, and looks at what they leave."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import tomli_w
import torch

from scfs.runs import checkpoint

TOTAL_STEPS = 40
RECIPE: dict[str, dict[str, Any]] = {
    "data": {"source": "scenes:64,8", "workers": 1},
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
    "optim": {"epochs": 5, "batch_size": 8, "final_lr": 0.0001, "warmup_epochs": 1},
    "run": {
        "log_every_steps": 1,
        "knn_every_epochs": 0,
        "device": "cpu",
        "threads": 1,
        "checkpoint_every_steps": 3,
    },
}
TORCHRUN = ["-m", "torch.distributed.run"]
PATIENCE = 120.0  # seconds; what takes longer hangs


class Outcome(NamedTuple):
    """What became of one try."""

    survived: bool
    seconds: float | None = None  # from the fault to the end of all processes
    steps_lost: int | None = None  # done, and to be done again
    note: str = ""


class Run:
    """A run in a folder, and its processes: torchrun, ranks and loader workers."""

    def __init__(self, folder: Path, *, processes: int = 1, restarts: int = 0):
        self.folder, self.processes, self.restarts = folder, processes, restarts
        self.started: subprocess.Popen[str] | None = None
        self.seen: set[int] = set()  # its processes so far

    def start(
        self,
        *flags: str,
        resume: bool = False,
        program: Sequence[str] = ("scfs",),
        env: dict[str, str] | None = None,
    ) -> subprocess.Popen[str]:
        """Start or resume it; returns the process: torchrun's, if there is more than one.

        program: a module, and arguments before those of scfs.
        """
        launcher: list[str] = []
        if self.processes > 1:
            launcher = [*TORCHRUN, "--standalone", "--nproc-per-node", str(self.processes)]
            launcher += ["--max-restarts", str(self.restarts)]
        resuming = ("--resume",) if self.restarts and not resume else ()
        command = [*launcher, "-m", *program, *self.args(resume=resume), *resuming, *flags]
        self.started, self.seen = start_session([sys.executable, *command], env or {}), set()
        return self.started

    def args(self, *, resume: bool = False) -> list[str]:
        """The arguments of scfs."""
        recipe = self.folder.with_suffix(".toml")
        recipe.write_text(tomli_w.dumps(RECIPE), encoding="utf-8")
        what = [str(self.folder), "--resume"] if resume else [str(recipe), "--run.folder", str(self.folder)]
        return ["pretrain", *what, "-q"]

    def end(self, fault_at: float | None = None) -> tuple[int, str, float]:
        """Wait for the end: exit code, standard error, and seconds since the fault; what hangs is killed."""
        assert self.started is not None
        try:
            _, errors = self.started.communicate(timeout=PATIENCE)
            code = self.started.returncode
        except subprocess.TimeoutExpired:
            code, errors = -1, "hangs"
        wait_until(lambda: not self.alive(), seconds=30)
        self.kill(signal.SIGKILL)
        return code, errors, time.monotonic() - (fault_at or time.monotonic())

    def complete(self, *flags: str, resume: bool = False) -> str:
        """Run it to its end; returns what went wrong, empty if nothing did."""
        self.start(*flags, resume=resume)
        code, errors, _ = self.end()
        return "" if code == 0 else errors.strip()[-500:] or f"exit code {code}"

    def alive(self) -> list[int]:
        """Its living processes, as far as they were seen before the process that started them ended."""
        assert self.started is not None
        self.seen.update(descendants(self.started.pid))
        return [process for process in self.seen if is_alive(process)]

    def kill(self, number: int) -> None:
        """Send a signal to all processes of the run."""
        send(number, self.alive())

    def ranks(self) -> list[int]:
        """The processes that train, in the order of their ranks."""
        assert self.started is not None
        return [self.started.pid] if self.processes == 1 else children(self.started.pid)

    def losses(self) -> dict[int, float]:
        """The loss of each step in the log."""
        try:
            lines = (self.folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return {}
        rows = [json.loads(line) for line in lines if line.endswith("}")]
        return {row["step"]: row["loss"] for row in rows if "loss" in row}

    def steps_logged(self) -> int:
        """The last step in the log."""
        return max(self.losses(), default=0)

    def wait_for(self, step: int) -> bool:
        """Wait until a step is logged; False if the run ends before."""
        assert self.started is not None
        reached = wait_until(lambda: self.steps_logged() >= step or self.started.poll() is not None)
        self.alive()  # to know all of them when one is killed
        return reached and self.started.poll() is None

    def saved_step(self) -> int:
        """The step of the checkpoint that resuming would use; 0 without one."""
        found = checkpoint.load_last(self.folder / "last.pt", lambda _: None)
        return 0 if found is None else int(found["step"])

    def weights(self) -> dict[str, torch.Tensor]:
        """Networks, heads and centers of the last checkpoint."""
        content = checkpoint.load(self.folder / "last.pt")
        return dict(content["method"])


def start_session(command: Sequence[str], env: Mapping[str, str]) -> subprocess.Popen[str]:
    """Start a command in a session of its own."""
    variables = {"OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", **env}
    return subprocess.Popen(
        command,
        env={**os.environ, **variables},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def send(number: int, processes: Sequence[int]) -> None:
    """Send a signal to processes that may have ended."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)


def descendants(process: int) -> list[int]:
    """A process, and those that it and its children started; torchrun's are in sessions of their own."""
    return [process, *(each for child in children(process) for each in descendants(child))]


def is_alive(process: int) -> bool:
    """Whether a process runs or is stopped."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def children(process: int) -> list[int]:
    """The child processes, oldest first."""
    try:
        listed = Path(f"/proc/{process}/task/{process}/children").read_text()
    except OSError:
        return []
    return sorted(map(int, listed.split()))


def wait_until(happened: Callable[[], bool], seconds: float = PATIENCE, *, every: float = 0.05) -> bool:
    """Wait for something, looking again and again; False if it takes too long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if happened():
            return True
        time.sleep(every)
    return False


def equal(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> bool:
    """Whether two runs ended with the same weights, bit for bit."""
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


def first_line(text: str, words: Sequence[str] = ("scfs:",)) -> str:
    """The first line of a message that has one of some words."""
    return next((line for line in text.splitlines() if any(word in line for word in words)), "")
