"""python -m faults.collapse [--only WORDS ...] [--healthy N] [--imagenette FOLDER] [--write PAGE].

Makes short trainings go wrong on purpose and prints what the monitor said; then trains without faults, to count false
alarms.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from PIL import Image

from scfs.config import Config
from scfs.data.views import MultiCrop
from scfs.markdown import markdown_table
from scfs.pretraining.health import Health
from scfs.recipe import check, read_toml
from scfs.runs import layout
from scfs.runs.findings import first_check
from scfs.runs.metric import Metric
from scfs.runs.metrics_log import logged_metrics
from scfs.runs.verdict import judge, total_steps
from scfs.view_batch import ViewBatch

FAULT_HEAD = ("fault", "how", "what the monitor said, first at step", "k-NN top-1, %", "RankMe")
HEALTHY_HEAD = ("run without a fault", "steps", "checked from step", "warnings")
MARK = "<!-- collapse -->"
STOPPED = 130  # exit code
QUICKSTART_STEPS, IMAGENETTE_STEPS = 117, 72  # three epochs and two
EVERY_STEP = {"run.log_every_steps": 1, "run.threads": 1, "data.workers": 0}
# quickstart_paper with fewer images, local views and steps, in half precision where that is native.
SHORT = EVERY_STEP | {
    "data.source": "scenes:960,1000",
    "optim.batch_size": 32,
    "optim.epochs": 6,
    "optim.precision": "auto",
    "views.num_local_views": 2,
    "run.knn_every_epochs": 3,
}


def one_image() -> None:
    """Show the network the same image at every index."""
    pixels = Image.effect_mandelbrot((64, 64), (-2, -1.5, 1, 1.5), 50).convert("RGB")
    _replace_images(lambda _: pixels)


def constant_colours() -> None:
    """Show the network the mean colour of each image instead of the image."""
    _replace_images(lambda image: image.resize((1, 1), Image.Resampling.BOX).resize(image.size))


def _replace_images(replace: Callable[[Image.Image], Image.Image]) -> None:
    """In training only: k-NN sees the images themselves."""
    make_views = MultiCrop.__call__

    def views(self: MultiCrop, image: Image.Image, seed: int) -> ViewBatch:
        return make_views(self, replace(image), seed)

    MultiCrop.__call__ = views  # type: ignore[method-assign]


class Fault(NamedTuple):
    """Settings that break a training, or a function of this module that does, called in its process."""

    how: str
    settings: dict[str, Any]
    patch: str = ""


FAULTS = {
    "none": Fault("", {}),
    "no centering": Fault("method.center_momentum = 1", {"method.center_momentum": 1}),
    "learning rate x 100": Fault("optim.lr = 20", {"optim.lr": 20}),
    "frozen teacher": Fault("method.momentum = 1", {"method.momentum": 1}),
    "the teacher is the student": Fault(
        "method.momentum = 0 to the end", {"method.momentum": 0, "method.final_momentum": 0}
    ),
    "one image, repeated": Fault("in place of every image", {}, "one_image"),
    "constant colours": Fault("each image replaced by its mean colour", {}, "constant_colours"),
    "idle data term": Fault(
        "method.batch_norm = false, method.teacher_temp = 0.07",
        {"method.batch_norm": "false", "method.teacher_temp": 0.07, "method.teacher_temp_start": 0.07},
    ),
}


class Warned(NamedTuple):
    """What a warning was about, and the step at which it was printed."""

    step: int
    kind: str
    term: str  # empty for the features


def train(folder: Path, recipe: str, settings: dict[str, Any], *, patch: str = "", stop_after: int = 0) -> str:
    """Train as users do, in a process of its own, perhaps stopped early; returns what it printed.

    A run that is already there is not repeated.
    """
    printed, unfinished = folder.with_suffix(".txt"), folder.with_suffix(".part")
    if printed.exists():
        return printed.read_text(encoding="utf-8")
    code = f"import sys; from faults import collapse; {f'collapse.{patch}(); ' if patch else ''}"
    code += "from scfs.cli import main; sys.exit(main(sys.argv[1:]))"
    flags = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
    command = [sys.executable, "-c", code, "pretrain", recipe, "--run.folder", str(folder), *flags]
    variables = {**os.environ, "OMP_NUM_THREADS": "1"}
    with unfinished.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=variables)
        while stop_after and process.poll() is None and _last_step(folder) < stop_after:
            time.sleep(0.5)
        if stop_after and process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait()
    if process.returncode not in (0, STOPPED):
        raise RuntimeError(unfinished.read_text(encoding="utf-8"))
    unfinished.rename(printed)
    return printed.read_text(encoding="utf-8")


def _last_step(folder: Path) -> int:
    rows = layout.read_metrics(folder)
    return int(rows[-1]["step"]) if rows else 0


def _steps(folder: Path) -> list[dict[str, Any]]:
    """The rows of a log that are about training steps, not scores."""
    return [row for row in layout.read_metrics(folder) if "loss" in row]


def warnings(folder: Path) -> Iterator[Warned]:
    """What the monitor said about a run that logged every step."""
    config, steps = settings_of(folder), _steps(folder)
    health = Health(total_steps(steps, config.optim.epochs), config.method.num_outputs)
    for row in layout.read_metrics(folder):
        step, before = row["step"], {*health.warned}
        ranks = [metric.value for _, metric in logged_metrics([row]).get("RankMe", [])]
        checks = [health.check(step, row)] if "loss" in row else [health.check_rank(step, rank) for rank in ranks]
        if [text for check in checks for text in check]:
            yield from (Warned(step, kind, term) for kind, term in sorted(health.warned - before))


def settings_of(folder: Path) -> Config:
    """The resolved settings of a run."""
    return check(Config, read_toml(folder / layout.SETTINGS))


def fault_line(name: str, folder: Path) -> list[str]:
    """A row of the table of faults."""
    fault = FAULTS[name]
    printed = train(folder, "quickstart_paper", SHORT | fault.settings, patch=fault.patch)
    found = [*warnings(folder)]
    live = printed.count("Warning at step")
    if live != len(found):
        raise RuntimeError(f"{name}: {live} warnings were printed and {len(found)} are in the log.\n{printed}")
    scores = logged_metrics(layout.read_metrics(folder))
    before_and_after = [_ends(scores[each]) for each in ("k-NN top-1", "RankMe")]
    return [name, fault.how, said(found), *before_and_after]


def _ends(points: Sequence[tuple[int, Metric]]) -> str:
    """The first and the last value of a metric, with its interval."""
    first, last = points[0][1], points[-1][1]
    interval = last.shown_interval()
    return f"{first.shown()} to {last.shown()}{f' ({interval})' if interval else ''}"


def said(found: Sequence[Warned]) -> str:
    """Kinds and terms by the step of the warning."""
    if not found:
        return "nothing"
    return "; ".join(f"{kind}{f' ({term})' if term else ''} {step}" for step, kind, term in found)


def healthy_line(folder: Path, recipe: str, settings: dict[str, Any], steps: int) -> list[str]:
    """A row of the table of runs without a fault: the first steps of a run whose schedules are of full length."""
    train(folder, recipe, EVERY_STEP | {"run.knn_every_epochs": 0} | settings, stop_after=steps)
    return [f"{recipe}, seed {settings['seed']}", *_checked(folder), said([*warnings(folder)])]


def log_line(folder: Path) -> list[str]:
    """A row of the same table, from the log of a run that did not log every step."""
    config, rows = settings_of(folder), layout.read_metrics(folder)
    found = judge(rows, epochs=config.optim.epochs, num_outputs=config.method.num_outputs).warnings
    texts = "; ".join(f"{warning.message} ({warning.step})" for warning in found)
    return [f"{folder.name}, seed {config.seed}, its log", *_checked(folder), texts or "nothing"]


def _checked(folder: Path) -> tuple[str, str]:
    rows = _steps(folder)
    total = total_steps(rows, settings_of(folder).optim.epochs)
    return f"{rows[-1]['step']} of {total}", str(first_check(total))


def fault_table(root: Path, only: Sequence[str]) -> str:
    """Train with every fault, or with some."""
    lines = []
    for number, name in enumerate(FAULTS):
        if not only or any(word in name for word in only):
            lines.append(fault_line(name, root / f"fault-{number}"))
            print(*lines[-1], sep="  ", flush=True)
    return markdown_table(FAULT_HEAD, lines)


def healthy_table(root: Path, seeds: int, imagenette: str, logs: Sequence[Path]) -> str:
    """Train without a fault, and read the logs of other runs."""
    runs = [("quickstart", {"seed": seed}, QUICKSTART_STEPS) for seed in range(seeds)]
    if imagenette:
        runs.append(("cpu_imagenette", {"seed": 0, "data.source": imagenette}, IMAGENETTE_STEPS))
    lines = []
    for recipe, settings, steps in runs:
        folder = root / f"{recipe}-{settings['seed']}"
        lines.append(healthy_line(folder, recipe, settings, steps))
        print(*lines[-1], sep="  ", flush=True)
    return markdown_table(HEALTHY_HEAD, [*lines, *map(log_line, logs)])


def main() -> int:
    """Train with faults and without."""
    parser = argparse.ArgumentParser(prog="python -m faults.collapse", description=__doc__)
    parser.add_argument("--only", nargs="*", default=[], help="faults whose names have one of these words")
    parser.add_argument("--healthy", type=int, default=5, metavar="N", help="seeds of quickstart to train on")
    parser.add_argument("--imagenette", default="", metavar="FOLDER", help="also train cpu_imagenette on this folder")
    parser.add_argument("--logs", type=Path, nargs="*", default=[], help="folders of finished runs to read")
    parser.add_argument("--folder", type=Path, help="where to keep the runs; those already there are not repeated")
    parser.add_argument("--write", type=Path, help="page whose tables are replaced")
    args = parser.parse_args()
    with TemporaryDirectory(prefix="collapse-") as temporary:
        root = args.folder or Path(temporary)
        root.mkdir(parents=True, exist_ok=True)
        faults = fault_table(root, args.only)
        healthy = healthy_table(root, args.healthy, args.imagenette, args.logs)
    tables = f"{faults}\n\n{healthy}"
    print(tables)
    if args.write:
        before, _, rest = args.write.read_text(encoding="utf-8").partition(MARK)
        _, _, after = rest.partition(MARK)
        args.write.write_text(f"{before}{MARK}\n\n{tables}\n\n{MARK}{after}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
