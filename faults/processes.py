"""Processes that die or are stopped, in the middle of a run."""

import atexit
import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from tempfile import mkdtemp

from faults.launch import TOTAL_STEPS, Outcome, Run, children, equal, is_alive, wait_until

EARLIEST, LATEST = 2, TOTAL_STEPS - 4
TEMPORARY = ".last.pt.*.part"


@cache
def unbroken(processes: int) -> Run:
    """A run that nothing happens to."""
    root = Path(mkdtemp(prefix="faults-"))
    atexit.register(shutil.rmtree, root)
    run = Run(root / f"unbroken-{processes}", processes=processes)
    problem = run.complete()
    assert not problem, problem
    return run


def _interrupted(
    folder: Path, random_: random.Random, break_: Callable[[Run], None], *, processes: int = 1, restarts: int = 0
) -> tuple[Run, float, int, str, float]:
    run = Run(folder, processes=processes, restarts=restarts)
    run.start()
    run.wait_for(random_.randint(EARLIEST, LATEST))
    time.sleep(random_.random() * 0.2)  # anywhere in a step
    fault_at = time.monotonic()
    break_(run)
    code, errors, seconds = run.end(fault_at)
    return run, fault_at, code, errors, seconds


def resumed(run: Run, seconds: float | None = None) -> Outcome:
    """Resume an interrupted run, and compare it with an unbroken one."""
    lost = run.steps_logged() - run.saved_step()
    if problem := run.complete(resume=True):
        return Outcome(False, seconds, lost, problem)
    same = equal(run.weights(), unbroken(run.processes).weights())
    return Outcome(same, seconds, lost, "" if same else "other weights than those of the unbroken run")


def killed(folder: Path, random_: random.Random, *, processes: int) -> Outcome:
    """All processes are killed with -9 at a random moment; the resumed run must equal an unbroken one."""
    run, _, _, _, seconds = _interrupted(folder, random_, lambda run: run.kill(signal.SIGKILL), processes=processes)
    return resumed(run, seconds)


def killed_in_save(folder: Path, random_: random.Random) -> Outcome:
    """Killed with -9 while a checkpoint is being written, which its temporary file shows."""
    run = Run(folder)
    for attempt in range(10):
        run.start("--run.checkpoint_every_steps", "1", resume=attempt > 0)
        run.wait_for(run.steps_logged() + random_.randint(1, 5))
        wait_until(lambda: any(folder.glob(TEMPORARY)), every=0.001)
        run.kill(signal.SIGKILL)
        run.end()
        if any(folder.glob(TEMPORARY)):
            return resumed(run)
    return Outcome(False, note="was never killed inside a save")


def signalled(folder: Path, random_: random.Random, *, number: int, processes: int, twice: bool = False) -> Outcome:
    """A signal to all processes at once, as cluster managers send it: the run must save and lose no step."""

    def send(run: Run) -> None:
        run.kill(number)
        if twice:
            time.sleep(0.3)
            run.kill(number)

    run, _, _, errors, seconds = _interrupted(folder, random_, send, processes=processes)
    outcome = resumed(run, seconds)
    if outcome.steps_lost:
        return outcome._replace(survived=False, note=f"{outcome.steps_lost} steps were not saved: {errors[-200:]}")
    return outcome


def worker_killed(folder: Path, random_: random.Random, *, processes: int) -> Outcome:
    """A data loader worker is killed: the run must end within seconds with one sentence, and resume."""

    def kill(run: Run) -> None:
        workers = [child for rank in run.ranks() for child in children(rank)]
        os.kill(random_.choice(workers), signal.SIGKILL)

    run, _, code, errors, seconds = _interrupted(folder, random_, kill, processes=processes)
    if code == 0 or "Data loader worker" not in errors or seconds > 60:
        return Outcome(False, seconds, note=f"exit code {code}: {errors[-200:]}")
    return resumed(run, seconds)


def agent_killed(folder: Path, random_: random.Random) -> Outcome:
    """The process of torchrun is killed: its processes must save and end instead of training on."""

    def kill(run: Run) -> None:
        assert run.started is not None
        os.kill(run.started.pid, signal.SIGKILL)

    run, _, _, _, seconds = _interrupted(folder, random_, kill, processes=2)
    outcome = resumed(run, seconds)
    return outcome if not outcome.steps_lost else outcome._replace(survived=False, note="steps were not saved")


def rank_killed(folder: Path, random_: random.Random) -> Outcome:
    """One of two processes is killed under --max-restarts: torchrun restarts both, and the end must be the same."""
    run, _, code, errors, seconds = _interrupted(
        folder, random_, lambda run: os.kill(random_.choice(run.ranks()), signal.SIGKILL), processes=2, restarts=2
    )
    if code != 0:
        return Outcome(False, seconds, note=errors[-200:])
    same = equal(run.weights(), unbroken(2).weights())
    return Outcome(same, None, 0, "" if same else "other weights than those of the unbroken run")


def rank_stopped(folder: Path, random_: random.Random) -> Outcome:
    """One of two processes stops answering: the other must end, after the timeout, instead of waiting for ever."""
    run = Run(folder, processes=2)
    run.start(env={"SCFS_TIMEOUT": "5"})
    run.wait_for(random_.randint(EARLIEST, LATEST))
    stopped, other = random_.sample(run.ranks(), 2)
    fault_at = time.monotonic()
    os.kill(stopped, signal.SIGSTOP)
    ended = wait_until(lambda: not is_alive(other), 60)
    seconds = time.monotonic() - fault_at
    run.kill(signal.SIGCONT)
    run.kill(signal.SIGKILL)
    run.end()
    return resumed(run, seconds) if ended else Outcome(False, seconds, note="the other process still waits")


FAULTS = {
    "killed with -9 at a random moment, one process": (20, partial(killed, processes=1)),
    "killed with -9 at a random moment, two processes": (20, partial(killed, processes=2)),
    "killed with -9 inside a save": (20, killed_in_save),
    "SIGTERM to all, one process": (4, partial(signalled, number=signal.SIGTERM, processes=1)),
    "SIGTERM to torchrun and ranks at once": (4, partial(signalled, number=signal.SIGTERM, processes=2)),
    "SIGTERM to all, twice": (4, partial(signalled, number=signal.SIGTERM, processes=1, twice=True)),
    "SIGHUP": (4, partial(signalled, number=signal.SIGHUP, processes=1)),
    "SIGUSR1": (4, partial(signalled, number=signal.SIGUSR1, processes=1)),
    "a loader worker killed, one process": (4, partial(worker_killed, processes=1)),
    "a loader worker killed, two processes": (4, partial(worker_killed, processes=2)),
    "torchrun killed": (4, agent_killed),
    "a rank killed under --max-restarts": (10, rank_killed),
    "a rank stopped": (2, rank_stopped),
}
