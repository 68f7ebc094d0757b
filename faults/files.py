"""Files that are damaged, shared, linked elsewhere or too large."""

import json
import random
import resource
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

from faults.launch import Outcome, Run, first_line
from faults.processes import resumed

FINISHED_STEPS = 12


def _begun(folder: Path) -> Run:
    """A run that was stopped after a few steps, with two checkpoints."""
    run = Run(folder)
    run.start()
    run.wait_for(FINISHED_STEPS)
    run.kill(signal.SIGTERM)
    run.end()
    return run


def flipped_bit(folder: Path, random_: random.Random) -> Outcome:
    """One bit of the last checkpoint is flipped: resuming must notice, and continue from the one before."""
    run = _begun(folder)
    path = folder / "last.pt"
    content = bytearray(path.read_bytes())
    content[random_.randrange(len(content))] ^= 1 << random_.randrange(8)
    path.write_bytes(content)
    return resumed(run)


def cut_short(folder: Path, random_: random.Random) -> Outcome:
    """The last checkpoint is cut short at a random length."""
    run = _begun(folder)
    path = folder / "last.pt"
    path.write_bytes(path.read_bytes()[: random_.randrange(path.stat().st_size)])
    return resumed(run)


def two_writers(folder: Path, random_: random.Random) -> Outcome:
    """A run is resumed while it still trains: the second must be refused, and the first not be disturbed."""
    run = Run(folder)
    run.start("--optim.epochs", "1000")
    run.wait_for(random_.randint(4, 20))
    second = Run(folder)
    second.start(resume=True)
    code, errors, _ = second.end()
    before = run.steps_logged()
    run.wait_for(before + 3)
    fault_at = time.monotonic()
    run.kill(signal.SIGTERM)
    _, _, seconds = run.end(fault_at)
    if code != 2 or "in use by process" not in errors:
        return Outcome(False, seconds, note=f"the second: exit code {code}, {errors[-200:]}")
    lost = run.steps_logged() - run.saved_step()
    return Outcome(run.saved_step() > before and lost == 0, seconds, lost)


def linked_files(folder: Path, _: random.Random) -> Outcome:
    """Every file of a run folder, and the names of temporary ones, link to a file elsewhere, which must not change."""
    run = _begun(folder)
    victim = folder.parent / f"{folder.name}-start-up-file"
    victim.write_text("mine\n")
    kept = ("last.pt", "last.previous.pt", "settings.toml", "checkpoints.json", "environment.json")
    names = [path.name for path in folder.iterdir() if path.is_file() and path.name not in kept]
    for name in names:
        (folder / name).unlink()
    for name in (*names, *(f"{name}.part" for name in names), *(f".{name}.part" for name in (*names, *kept))):
        (folder / name).symlink_to(victim)
    started = run.start(resume=True)
    _, errors = started.communicate()
    intact = victim.read_text() == "mine\n"
    return Outcome(intact, note=first_line(errors) if intact else "the file elsewhere was written to")


def file_limit(folder: Path, random_: random.Random) -> Outcome:
    """Files may not grow (ulimit -f) while a run is resumed: nothing on disk may be damaged."""
    run = _begun(folder)
    limit = random_.choice([4096, 65536, 262144])

    def lower() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    command = [sys.executable, "-m", "scfs", "pretrain", str(folder), "--resume", "-q"]
    start = time.monotonic()
    done = subprocess.run(command, preexec_fn=lower, capture_output=True, text=True, timeout=120)
    seconds = time.monotonic() - start
    if done.returncode != 2 or "limit" not in done.stderr:
        return Outcome(False, seconds, note=f"exit code {done.returncode}: {done.stderr[-200:]}")
    return resumed(run)._replace(seconds=seconds)


def results_at_once(folder: Path, _: random.Random, *, writers: int = 8, each: int = 10) -> Outcome:
    """Several processes record results in one folder at once: none may be lost."""
    folder.mkdir(parents=True)
    code = (
        "import sys; from pathlib import Path; from scfs.runs.results import Result, add_result\n"
        "for i in range(int(sys.argv[2])): add_result(Path(sys.argv[1]), Result('knn', [], data=f'{sys.argv[3]} {i}'))"
    )
    started = [
        subprocess.Popen([sys.executable, "-c", code, str(folder), str(each), str(number)]) for number in range(writers)
    ]
    for process in started:
        process.wait()
    found = {entry["data"] for entry in json.loads((folder / "results.json").read_text())}
    return Outcome(len(found) == writers * each, note=f"{len(found)} of {writers * each}")


FAULTS = {
    "a bit of the last checkpoint flipped": (10, flipped_bit),
    "the last checkpoint cut short": (5, cut_short),
    "a run resumed while it trains": (3, two_writers),
    "files of the run folder linked elsewhere": (3, linked_files),
    "a limit on the size of files, on resume": (3, file_limit),
    "eight processes recording results at once": (3, partial(results_at_once)),
}
