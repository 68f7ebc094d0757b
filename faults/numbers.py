"""Numbers that are not finite, and memory that runs out, in the middle of a run."""

import random
import time
from functools import partial
from pathlib import Path

from faults.launch import Outcome, Run
from faults.processes import EARLIEST, LATEST, resumed


def injected(folder: Path, random_: random.Random, *, fault: str, message: str, processes: int = 1) -> Outcome:
    """The run must end with a sentence, save nothing broken and, resumed without the fault, equal an unbroken one."""
    run = Run(folder, processes=processes)
    run.start(program=("faults.injected", fault, str(random_.randint(EARLIEST, LATEST))))
    code, errors, _ = run.end()
    seconds = time.time() - (folder / "metrics.jsonl").stat().st_mtime  # since the last good step
    if code == 0 or message not in errors or (processes == 1 and code != 2):
        return Outcome(False, note=f"exit code {code}: {errors[-300:]}")
    return resumed(run, seconds)


GRADIENTS = "The gradients of backbone.net"
FAULTS = {
    "a gradient of NaN at a finite loss": (4, partial(injected, fault="nan", message=GRADIENTS)),
    "a gradient of inf at a finite loss": (4, partial(injected, fault="inf", message=GRADIENTS)),
    "NaN in the teacher's batch-norm statistics": (4, partial(injected, fault="statistics", message="running_var")),
    "MemoryError in a loader worker, one process": (4, partial(injected, fault="memory", message="memory")),
    "MemoryError in a loader worker, two processes": (
        4,
        partial(injected, fault="memory", message="memory", processes=2),
    ),
}
