"""What other programs on the same cores cost a run that uses all of them, with and without a core for each thread.

    python benchmarks/busy_cores.py [--busy 0 1] [--rounds 2] [--write PAGE.md]

Runs a few steps of `own_photos` on drawn scenes, each time in a new process, beside other processes that keep a core
busy each, in sessions of their own as another user's or window's are. OMP_PROC_BIND=false leaves it to the system which
thread runs where, as without scfs. For Linux; takes a few minutes.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from scfs.bench.page import Row, show
from scfs.runs.layout import metrics_lines, parse_row

ARRANGEMENTS = {"bound": {}, "left to the system": {"OMP_PROC_BIND": "false"}}
RUN = "scfs pretrain own_photos --data.source scenes:320,8 --optim.batch_size 64 --optim.epochs 2"
WARM_UP = 3  # steps that are not counted


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """Keep so many cores busy with other processes."""
    command = [sys.executable, "-c", f"import os\nwhile os.getppid() == {os.getpid()}: pass"]  # ends with this process
    others = [subprocess.Popen(command, start_new_session=True) for _ in range(count)]
    try:
        yield
    finally:
        for each in others:
            each.kill()
            each.wait()


def images_per_second(environment: dict[str, str]) -> float:
    """The median over the steps of a short run."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", *RUN.split(), "--run.log_every_steps", "1", "--run.folder", f"{folder}/run"]
        subprocess.run(command, check=True, capture_output=True, env={**os.environ, **environment})
        rows = [parse_row(line) for line in metrics_lines(Path(folder) / "run")]
    speeds = [row["images_per_second"] for row in rows if row and "images_per_second" in row]
    return statistics.median(speeds[WARM_UP:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--busy", nargs="+", type=int, default=[0, 1], help="numbers of other processes")
    parser.add_argument("--rounds", type=int, default=2, help="runs of each, in turn")
    parser.add_argument("--write", default="", help="page to add the table to")
    arguments = parser.parse_args()
    rows: list[Row] = []
    for busy in arguments.busy:
        speeds: dict[str, list[float]] = {name: [] for name in ARRANGEMENTS}
        with busy_processes(busy):
            for _ in range(arguments.rounds):
                for name, environment in ARRANGEMENTS.items():
                    speeds[name].append(images_per_second(environment))
        medians = {name: statistics.median(values) for name, values in speeds.items()}
        rows.append({"other processes": str(busy), **{name: f"{value:.0f}" for name, value in medians.items()}})
    title = f"Images per second on {os.cpu_count()} cores, by the cores of threads"
    show(Console(), title, rows, write=arguments.write)


if __name__ == "__main__":
    main()
