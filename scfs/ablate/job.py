import re
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.console import Console

from scfs import distributed
from scfs.ablate.rows import TABLES, TableRow, probe_blocks
from scfs.ablate.settings import Ablate
from scfs.ablate.table import Measured, write_table
from scfs.config import Config
from scfs.data.sources import open_labelled, open_train
from scfs.errors import UserError
from scfs.evaluate.knn.job import knn
from scfs.evaluate.knn.neighbours import HEADLINE_K
from scfs.evaluate.knn.settings import Knn
from scfs.evaluate.linear.job import linear
from scfs.evaluate.linear.settings import Linear
from scfs.evaluate.settings import Evaluation
from scfs.pretrain.auto import resolve
from scfs.pretrain.build import build_method
from scfs.pretrain.job import pretrain
from scfs.pretrain.start import is_free
from scfs.runs import layout
from scfs.runs.files import read_json, write_json
from scfs.runs.metric import Metric, by_name
from scfs.runs.results import read_results
from scfs.runs.resume import flat
from scfs.training.resumable import FREE

TRAINED = "trained"  # marks a run that is done


class Scoring(NamedTuple):
    """An evaluation that every run gets: its column in the table, the metric shown there, and how it is done."""

    column: str
    evaluation: str
    metric: str
    evaluate: Callable[[str, Any, Console], Sequence[Metric]]
    settings: Evaluation


def ablate(what: str, configs: Sequence[Config], settings: Ablate, console: Console) -> Path:
    """Train and score the rows of one of the paper's tables, each with several seeds: the `scfs ablate` command.

    What is done already is skipped, and what was begun goes on. Returns the page with the table.
    """
    folder = Path(settings.folder or f"runs/ablate-{what}")
    rows = TABLES[what](configs, settings)
    device = distributed.choose_device(configs[0].run.device)
    with distributed.process_group(device):
        distributed.on_rank_zero(lambda: _begin(folder, rows, settings))
        measured: dict[str, list[Measured]] = {}
        for row in rows:
            for seed in settings.seeds:
                config = row.config.model_copy(update={"seed": seed})
                run = folder / f"{_file_name(row)}-seed{seed}"
                console.rule(f"{row.name}, seed {seed}")
                metrics = _train_and_score(run, config, settings, console)
                measured.setdefault(row.name, []).append(Measured(metrics, *_cost(run, config)))
        return Path(distributed.on_rank_zero(lambda: str(write_table(folder, what, rows, measured, settings, console))))


def _file_name(row: TableRow) -> str:
    return re.sub(r"[^a-z0-9]+", "-", row.name.lower()).strip("-")


def _begin(folder: Path, rows: Sequence[TableRow], settings: Ablate) -> None:
    """A new folder, or one that was begun with the same rows; more rows and seeds may be added."""
    _check(rows, settings)
    path = folder / "rows.json"
    begun, wanted = read_json(path, {}), {row.name: _kept(row.config) for row in rows}
    for row, settings_of_row in wanted.items():
        before = _kept(Config()) | begun.get(row, settings_of_row)  # a setting that came later had its default
        for name, value in settings_of_row.items():
            if before.get(name) != value:
                raise UserError(
                    f"{folder} was begun with {name} = {before.get(name)!r} for '{row}', not {value!r}; "
                    "choose another --folder."
                )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"Cannot create {folder}: {error.strerror}; choose another --folder.") from None
    write_json(path, begun | wanted)


def _check(rows: Sequence[TableRow], settings: Ablate) -> None:
    """Refuse what would fail later, before anything is trained."""
    if len({_file_name(row) for row in rows}) < len(rows):
        raise UserError("Two rows of the table are the same; give each backbone, or number of local views, once.")
    if len({*settings.seeds}) < len(settings.seeds):
        raise UserError("A seed is given twice and would count twice; give each of --seeds once.")
    for source, classes in {(_scored_on(row.config, settings), _classes(row.config, settings)) for row in rows}:
        open_labelled(source, classes=classes)
    num_images: dict[str, int] = {}  # by data, which rows mostly share
    for row in rows:
        data, key = row.config.data, row.config.data.model_dump_json()
        if key not in num_images:
            num_images[key] = len(open_train(data.source, classes=data.classes, max_pixels=data.max_pixels))
        config, _ = resolve(row.config, num_images[key], torch.device("cpu"))
        with torch.device("meta"):
            build_method(config)


def _kept(config: Config) -> dict[str, Any]:
    """The settings that make a row what it is."""
    values = flat(config.model_dump(mode="json", exclude={"seed"}))
    return {name: value for name, value in values if not is_free(name)}


def _scored_on(config: Config, settings: Ablate) -> str:
    return settings.data or config.data.source


def _classes(config: Config, settings: Ablate) -> str:
    """The recipe's class list is of its own data."""
    return "" if settings.data else config.data.classes


def _train_and_score(run: Path, config: Config, settings: Ablate, console: Console) -> dict[str, Metric]:
    """The metrics of a run by column; it is trained first if it is not yet."""
    if not (run / TRAINED).exists():
        _pretrain(run, config, console)
        distributed.on_rank_zero((run / TRAINED).touch)
    metrics: dict[str, Metric] = {}
    for scoring in _scorings(config, settings):
        found = _found(run, scoring)
        if found is None:
            found = by_name(scoring.evaluate(str(run), scoring.settings, console))[scoring.metric]
        metrics[scoring.column] = found
    return metrics


def _scorings(config: Config, settings: Ablate) -> list[Scoring]:
    """k-NN and, unless it is off, linear probes."""
    common: dict[str, Any] = {
        "data": _scored_on(config, settings),
        "classes": _classes(config, settings),
        "device": config.run.device,
        "workers": config.data.workers,
        "size": config.views.global_size,
    }
    scorings = [Scoring("k-NN", "knn", f"k={HEADLINE_K} top-1", knn, Knn(**common, k=(HEADLINE_K,)))]
    if settings.linear != "off":
        blocks = probe_blocks(config.backbone.name)
        probe = Linear(**common, cached=settings.linear == "cached", epochs=settings.linear_epochs, blocks=blocks)
        scorings.append(Scoring("linear", "linear", "top-1", linear, probe))
    return scorings


def _pretrain(run: Path, config: Config, console: Console) -> None:
    there = config.model_copy(update={"run": config.run.model_copy(update={"folder": str(run)})})
    try:
        pretrain(there, name=run.name, resume=True, console=console)
    except KeyboardInterrupt as stop:
        raise KeyboardInterrupt(f"{str(stop).partition(';')[0]} of {run}; the same command goes on.") from None


def _found(run: Path, scoring: Scoring) -> Metric | None:
    """The metric of the last evaluation of a run that was made with the same settings, if there is one."""
    asked = {**scoring.settings.model_dump(mode="json", exclude={*FREE}), "target": str(run)}
    for result in reversed(distributed.on_rank_zero(lambda: read_results(run))):
        is_same = all(result.settings.get(name) == value for name, value in asked.items())
        metrics = by_name(result.metrics)
        if result.evaluation == scoring.evaluation and scoring.metric in metrics and is_same:
            return metrics[scoring.metric]
    return None


def _cost(run: Path, config: Config) -> tuple[float, float]:
    """Images a second while training, and the hours that all of them took at that speed."""
    rows = layout.read_metrics(run)
    speeds = [row["images_per_second"] for row in rows if "images_per_second" in row]
    if not speeds:
        return 0.0, 0.0
    speed = statistics.median(speeds)
    return speed, max(row["step"] for row in rows) * config.optim.batch_size / speed / 3600
