"""How much is learned per minute on one core? This package's method compared with common alternatives.

    python benchmarks/rivals.py run --data imagenette=FOLDER --minutes 1.5 --choose         # learning rates
    python benchmarks/rivals.py run --data imagenette=FOLDER --minutes 10 --seeds 0 1 2
    python benchmarks/rivals.py run --data imagenette=FOLDER --minutes 3 --changes          # the effect of each choice
    python benchmarks/rivals.py run --data imagenette=FOLDER pets=FOLDER scenes --planned   # all of the table: a day
    python benchmarks/rivals.py table --plot docs/rivals.png

Every method gets the same photos, backbone (resnet10_half), rendering of views, precision and *processor time* on one
thread: data loading counts, evaluation does not. The number of epochs is what should fit, estimated from the first
steps; schedules end with the last epoch, and the table has the time it really took. Learning rates are chosen on every
fifth train photo, among a third, once, three and nine times the published one. That is less tuning than our own recipe
had, whose settings were chosen on the same held-out photos; `dino` is the same without terms at the layers,
and `dino-no-multicrop` without local views too: SimCLR's objective with our optimizer.

Runs already in the records are skipped, and an interrupted one is resumed; several processes may work on the same
records, each on its own core. Needs lightly: pip install --no-deps -r benchmarks/requirements.txt.
"""

import argparse
import fcntl
import itertools
import json
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import cv2
import torch
from rich.console import Console
from rival_methods import CHANGES, CPU, LightlyRun, OurRun, make_run, settings_of
from rival_records import FACTORS, METHODS, PLAN, RECORDS, SIZES, Planned, Record, best_factor, read_records, same_work
from rival_table import table

from scfs.backbones import Backbone
from scfs.data.loader import StepSampler, ViewDataset, view_loader
from scfs.data.selection import every_fifth
from scfs.data.sources import Source, open_labelled
from scfs.data.views import MultiCrop
from scfs.evaluate.features import NonFiniteFeaturesError, effective_rank, extract
from scfs.evaluate.knn.job import knn
from scfs.evaluate.knn.neighbours import HEADLINE_K, knn_accuracy
from scfs.evaluate.knn.settings import Knn
from scfs.evaluate.linear.job import linear
from scfs.evaluate.linear.settings import Linear
from scfs.method.losses import spread
from scfs.runs.metric import by_name
from scfs.training.cpu import keep_freed_memory
from scfs.training.precision import has_native_bfloat16

FRACTIONS = (0.25, 0.5, 0.75)  # of a run, after which it is scored by k-NN, as at the end
CALIBRATION_STEPS = 12
SAVE_MINUTES = 2.0


def batches(run: LightlyRun | OurRun, source: Source, seed: int, first_step: int, epochs: int) -> Any:
    dataset = ViewDataset(source, MultiCrop(**run.crops), seed)
    sampler = StepSampler(len(source), run.batch_size, epochs, seed=seed, start_step=first_step)
    return (micro_batches[0].views for micro_batches in view_loader(dataset, sampler, workers=0, pin=False))


def processor_seconds_per_step(work: Record, source: Source) -> tuple[float, int]:
    """The median over some steps of a discarded run, and the number of steps per epoch."""
    run = prepared(work, len(source), epochs=10)
    steps_per_epoch, times = len(source) // run.batch_size, []
    loader, mark = batches(run, source, 0, 0, 10), time.process_time()
    for step in range(CALIBRATION_STEPS):
        run.step(next(loader), step, steps_per_epoch)
        times.append(time.process_time() - mark)
        mark = time.process_time()
    return statistics.median(times[2:]), steps_per_epoch


def prepared(work: Record, num_images: int, epochs: int) -> LightlyRun | OurRun:
    torch.manual_seed(work["seed"])
    options = {"lr_factor": work["lr_factor"], "precision": work["precision"]}
    return make_run(work["method"], num_images=num_images, epochs=epochs, **options)


def train(work: Record, train_source: Source, val_source: Source, state: Path) -> tuple[Backbone, Record]:
    """Train for the given processor time; returns the backbone to score, and the record so far."""
    saved = torch.load(state, weights_only=False) if state.exists() else None
    if saved is None:
        seconds, steps_per_epoch = processor_seconds_per_step(work, train_source)
        epochs = max(1, round(work["minutes"] * 60 / seconds / steps_per_epoch))
        saved = {"step": 0, "seconds": 0.0, "epochs": epochs, "scores": []}
    epochs, done, spent = saved["epochs"], saved["step"], saved["seconds"]
    run = prepared(work, len(train_source), epochs)
    if "run" in saved:
        run.load_state_dict(saved["run"])
    steps_per_epoch = len(train_source) // run.batch_size
    total, scores, saved_at = epochs * steps_per_epoch, saved["scores"], spent
    due = {round(fraction * total) for fraction in FRACTIONS}
    mark = time.process_time()
    for batch in batches(run, train_source, work["seed"], done, epochs):
        run.step(batch, done, steps_per_epoch)
        done, spent, mark = done + 1, spent + time.process_time() - mark, time.process_time()
        if done in due:
            scores.append({"minutes": spent / 60, **score(run.backbone, train_source, val_source, work)})
        if spent - saved_at > SAVE_MINUTES * 60 and done < total:
            saved_at, part = spent, state.with_suffix(".part")
            content = {"step": done, "seconds": spent, "epochs": epochs, "scores": scores, "run": run.state_dict()}
            torch.save(content, part)
            part.replace(state)
        mark = time.process_time()
    scores.append({"minutes": spent / 60, **score(run.backbone, train_source, val_source, work)})
    return run.backbone, {
        "epochs": epochs,
        "batch_size": run.batch_size,
        "processor_minutes": spent / 60,
        "scores": scores,
    }


def score(backbone: Backbone, train_source: Source, val_source: Source, work: Record) -> Record:
    """k-NN and, from the same features, metrics that need no labels."""
    try:
        train_features, val_features = (
            extract(backbone, source, size=work["size"], batch_size=256, workers=0, device=CPU).labelled
            for source in (train_source, val_source)
        )
    except NonFiniteFeaturesError:
        print(f"{name_of(work)}: diverged", flush=True)
        return {"knn": 0.0, "rankme": 0.0, "spread": 0.0}
    accuracy = knn_accuracy(train_features, val_features, num_classes=len(train_source.classes))[HEADLINE_K]
    sample = train_features.features[
        torch.randperm(len(train_features.features), generator=torch.Generator().manual_seed(0))[:2048]
    ]
    print(f"{name_of(work)}: {accuracy.top1:.1%}", flush=True)
    return {"knn": accuracy.top1, "rankme": effective_rank(sample), "spread": float(spread(sample.unsqueeze(0)))}


def full_scores(backbone: Backbone, folder: Path, data: str, size: int) -> Record:
    """k-NN and cached linear top-1 on val with 95 % intervals, by this package's evaluations."""
    weights, console = folder / "backbone.pth", Console(quiet=True)
    torch.save(backbone.net.state_dict(), weights)
    common = {"data": data, "size": size, "workers": 0, "device": "cpu", "backbone": backbone.name}
    neighbours = by_name(knn(str(weights), Knn(**common, k=(HEADLINE_K,)), console))[f"k={HEADLINE_K} top-1"]
    probe = by_name(linear(str(weights), Linear(**common, cached=True), console))["top-1"]
    return {
        "knn": neighbours.value,
        "knn_interval": neighbours.interval,
        "linear": probe.value,
        "linear_interval": probe.interval,
    }


def name_of(work: Record) -> str:
    choosing = f"-lr{work['lr_factor']:.2g}" if work["held_out"] else ""
    method = re.sub(r"[^a-z0-9]+", "-", work["method"])
    how = f"{work['minutes']:g}min-{work['precision']}-{work['settings']}"
    return f"{work['data']}-{method}-{how}-seed{work['seed']}{choosing}"


def do(work: Record, data: str, folder: Path, records: Path) -> None:
    """One run, unless it is done or another process is working on it; appends its record to the file."""
    mine = folder / name_of(work)
    mine.mkdir(parents=True, exist_ok=True)
    with (mine / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        if any(same_work(record, work) for record in read_records(records)):
            return
        train_source, val_source = open_labelled(data)
        if data == "scenes":  # drawn when first read, and kept: the first steps would seem slow
            for source in (train_source, val_source):
                for index in range(len(source)):
                    source.image(index)
        if work["held_out"]:
            train_source, val_source = every_fifth(train_source)
        backbone, record = train(work, train_source, val_source, mine / "state.pt")
        if not work["held_out"] and record["scores"][-1]["knn"]:
            record |= full_scores(backbone, mine, data, work["size"])
        elif not work["held_out"]:  # diverged
            record |= dict.fromkeys(("knn", "linear"), 0.0) | dict.fromkeys(
                ("knn_interval", "linear_interval"), (0.0, 0.0)
            )
        commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
        records.parent.mkdir(parents=True, exist_ok=True)
        with records.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            command = " ".join(sys.argv[1:]).replace(data, Path(data).name)
            file.write(json.dumps({**work, **record, "commit": commit, "command": command}) + "\n")
        (mine / "state.pt").unlink(missing_ok=True)


def run_all(args: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    cv2.setNumThreads(0)
    keep_freed_memory()
    precision = args.precision or ("bfloat16" if has_native_bfloat16(CPU) else "float32")
    sources = dict(data_named(each) for each in args.data)
    for data, minutes, method, seed in PLAN if args.planned else asked_for(args, [*sources]):
        if data not in sources:
            continue
        held_out = args.choose or args.changes is not None
        chosen = 1.0 if args.changes is not None else best_factor(read_records(args.records), method)
        for factor in FACTORS if args.choose else [chosen]:
            work = {"data": data, "method": method, "minutes": minutes, "seed": seed, "held_out": held_out}
            work |= {"lr_factor": factor, "precision": precision, "size": SIZES[data]}
            do({**work, "settings": settings_of(method)}, sources[data], args.folder, args.records)


def data_named(text: str) -> tuple[str, str]:
    """The name and source of data given as NAME=SOURCE, or by a name that is its own source."""
    name, _, source = text.partition("=")
    return name, source or name


def asked_for(args: argparse.Namespace, names: list[str]) -> list[Planned]:
    """The runs that the flags describe."""
    changed = ["scfs", *(f"scfs, {name}" for name in args.changes or CHANGES)]
    methods = args.methods if args.changes is None else changed
    each = itertools.product(names, args.seeds, methods)
    return [Planned(data, args.minutes, method, seed) for data, seed, method in each]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    runner = commands.add_parser("run", help="train and score what is not yet in the records")
    runner.add_argument("--data", nargs="+", required=True, help="imagenette=FOLDER, pets=FOLDER or scenes")
    budget = runner.add_mutually_exclusive_group(required=True)
    budget.add_argument("--minutes", type=float)
    budget.add_argument("--planned", action="store_true", help="every run of the table, most important first")
    runner.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    runner.add_argument("--seeds", nargs="+", type=int, default=[0])
    runner.add_argument("--choose", action="store_true", help="try learning rates on held-out train photos")
    runner.add_argument(
        "--changes",
        nargs="*",
        choices=[*CHANGES, []],  # argparse checks even an empty list
        metavar="NAME",
        help=f"change settings of scfs, on held-out train photos; without names, each of: {', '.join(CHANGES)}",
    )
    runner.add_argument(
        "--precision", choices=["float32", "bfloat16"], help="default: bfloat16 if the CPU supports it natively"
    )
    runner.set_defaults(job=run_all)
    writer = commands.add_parser("table", help="print the table")
    writer.add_argument("--plot", type=Path, help="file for the plot")
    writer.add_argument("--earlier", action="store_true", help="only runs whose settings have changed since")
    writer.set_defaults(job=table)
    for each in (runner, writer):
        each.add_argument("--records", type=Path, default=RECORDS, help="file with one line per finished run")
    runner.add_argument("--folder", type=Path, default=Path("runs/rivals"), help="folder of unfinished runs")
    args = parser.parse_args()
    if args.job is run_all and args.planned and (args.choose or args.changes is not None):
        parser.error("--planned runs are scored on val photos: without --choose and --changes")
    for each in args.data if args.job is run_all else []:
        if data_named(each)[0] not in SIZES:
            parser.error(f"--data {each}: name the data {', '.join(SIZES)}, such as imagenette=FOLDER")
    args.job(args)


if __name__ == "__main__":
    main()
