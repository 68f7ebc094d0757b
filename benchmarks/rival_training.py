"""One run of rivals.py: trained for its CPU time, scored, recorded."""

import fcntl
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
from rich.console import Console
from rival_methods import CPU, LightlyRun, OurRun, make_run
from rival_records import Record, name_of, read_records, reference_seconds, same_work
from rival_settings import batch_size_of

import scfs
from scfs.backbones import Backbone
from scfs.bench.timing import interleaved
from scfs.data.loader import StepSampler, ViewDataset, view_loader
from scfs.data.scene_source import SceneSource
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
from scfs.runs.layout import commit_of
from scfs.runs.metric import by_name
from scfs.view_batch import ViewBatch

FRACTIONS = (0.25, 0.5, 0.75)  # of a run, after which it is scored by k-NN, as at the end
TIMED_ROUNDS, TIMED_EPOCHS = 12, 10
SAVE_MINUTES = 2.0


def batches(run: LightlyRun | OurRun, source: Source, seed: int, first_step: int, epochs: int) -> Iterator[ViewBatch]:
    dataset = ViewDataset(source, MultiCrop(**run.crops), seed)
    sampler = StepSampler(len(source), run.batch_size, epochs, seed=seed, start_step=first_step)
    return (micro_batches[0].views for micro_batches in view_loader(dataset, sampler, workers=0, pin=False))


def step_ratios(methods: Sequence[str], data: str, precision: str) -> dict[str, float]:
    """Processor time of a step of each method and its data, relative to scfs in bfloat16; the methods take turns."""
    source, _ = open_labelled(data)
    keep_drawn(source)
    runs = {"": make_run("scfs", num_images=len(source), epochs=TIMED_EPOCHS, lr_factor=1.0, precision="bfloat16")}
    for method in methods:
        runs[method] = make_run(method, num_images=len(source), epochs=TIMED_EPOCHS, lr_factor=1.0, precision=precision)
    jobs = {method: _step_of(run, source) for method, run in runs.items()}
    seconds = interleaved(jobs, TIMED_ROUNDS, clock=time.process_time)
    return {method: round(seconds[method] / seconds[""], 3) for method in methods}


def keep_drawn(*sources: Source) -> None:
    """Draw all scenes, which are kept: the first steps would seem slow."""
    for source in sources:
        for index in range(len(source)) if isinstance(source, SceneSource) else ():
            source.image(index)


def _step_of(run: LightlyRun | OurRun, source: Source) -> Callable[[int], object]:
    loader, steps_per_epoch = batches(run, source, 0, 0, TIMED_EPOCHS), len(source) // run.batch_size
    return lambda turn: run.step(next(loader), turn, steps_per_epoch)


def prepared(work: Record, num_images: int, epochs: int) -> LightlyRun | OurRun:
    torch.manual_seed(work["seed"])
    options = {"lr_factor": work["lr_factor"], "precision": work["precision"]}
    return make_run(work["method"], num_images=num_images, epochs=epochs, **options)


def train(work: Record, train_source: Source, val_source: Source, state: Path) -> tuple[Backbone, Record]:
    """Train for the given time of the reference core; returns the backbone to score, and the record so far."""
    saved = torch.load(state, weights_only=False) if state.exists() else None
    steps_per_epoch = len(train_source) // batch_size_of(work["method"])
    reference = reference_seconds(work["method"], work["precision"])
    epochs = max(1, round(work["minutes"] * 60 / reference / steps_per_epoch))
    saved = saved or {"step": 0, "seconds": 0.0, "epochs": epochs, "scores": [], "commits": []}
    epochs, done, spent = saved["epochs"], saved["step"], saved["seconds"]
    # Of the start and of each resumption with other code; HEAD may have moved by the end of the run.
    commits = [*dict.fromkeys([*saved["commits"], commit_of(Path(scfs.__file__).parents[1])])]
    run = prepared(work, len(train_source), epochs)
    if "run" in saved:
        run.load_state_dict(saved["run"])
    total, scores, saved_at = epochs * steps_per_epoch, saved["scores"], spent
    due = {round(fraction * total) for fraction in FRACTIONS}
    mark = time.process_time()
    for batch in batches(run, train_source, work["seed"], done, epochs):
        run.step(batch, done, steps_per_epoch)
        done, spent, mark = done + 1, spent + time.process_time() - mark, time.process_time()
        if done in due:
            scores.append({"minutes": done * reference / 60, **score(run.backbone, train_source, val_source, work)})
        if spent - saved_at > SAVE_MINUTES * 60 and done < total:
            saved_at, part = spent, state.with_suffix(".part")
            content = {"step": done, "seconds": spent, "epochs": epochs, "scores": scores, "commits": commits}
            torch.save({**content, "run": run.state_dict()}, part)
            part.replace(state)
        mark = time.process_time()
    minutes = total * reference / 60
    scores.append({"minutes": minutes, **score(run.backbone, train_source, val_source, work)})
    return run.backbone, {
        "epochs": epochs,
        "batch_size": run.batch_size,
        "reference_minutes": minutes,
        "processor_minutes": spent / 60,
        "scores": scores,
        "commit": ", ".join(commits),
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
        keep_drawn(train_source, val_source)
        if work["held_out"]:
            train_source, val_source = every_fifth(train_source)
        backbone, record = train(work, train_source, val_source, mine / "state.pt")
        if not work["held_out"] and record["scores"][-1]["knn"]:
            record |= full_scores(backbone, mine, data, work["size"])
        elif not work["held_out"]:  # diverged
            record |= dict.fromkeys(("knn", "linear"), 0.0) | dict.fromkeys(
                ("knn_interval", "linear_interval"), (0.0, 0.0)
            )
        records.parent.mkdir(parents=True, exist_ok=True)
        with records.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            command = " ".join(sys.argv[1:]).replace(data, Path(data).name)
            file.write(json.dumps({**work, **record, "command": command}) + "\n")
        (mine / "state.pt").unlink(missing_ok=True)
