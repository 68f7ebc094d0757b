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
from scfs.evaluate.target import with_absolute_paths
from scfs.pretraining.auto import resolve
from scfs.pretraining.build import build_method
from scfs.pretraining.job import pretrain
from scfs.pretraining.start import is_free
from scfs.runs import layout
from scfs.runs.files import damaged, read_json, read_json_lines, write_json, write_json_lines
from scfs.runs.metric import Metric, by_name
from scfs.runs.results import read_results
from scfs.runs.resume import flat
from scfs.training.resumable import FREE

ROWS = "rows.json"  # the settings of each row, in the folder of a table
RUNS = "runs.jsonl"  # one line for each finished run
TRAINED = "trained"  # marks a finished run


class Scoring(NamedTuple):
    """An evaluation of every run: its column in the table, the metric shown there, its job and its settings."""

    column: str
    evaluation: str
    metric: str
    evaluate: Callable[[str, Any, Console], Sequence[Metric]]
    settings: Evaluation


def ablate(name: str, configs: Sequence[Config], settings: Ablate, console: Console) -> Path:
    """Train and score the rows of one of the paper's tables, each with several seeds: the `scfs ablate` command.

    Finished work is skipped, interrupted work resumed. Returns the Markdown file with the table.
    """
    folder = Path(settings.folder or f"runs/ablate-{name}")
    rows = TABLES[name](configs, settings)
    device = distributed.choose_device(configs[0].run.device)
    with distributed.process_group(device):
        distributed.on_rank_zero(lambda: _open_folder(folder, rows, settings))
        measured: dict[str, list[Measured]] = {}
        records = distributed.on_rank_zero(lambda: _read_runs(folder))
        for row in rows:
            for seed in settings.seeds:
                config = row.config.model_copy(update={"seed": seed})
                run = folder / f"{_file_name(row)}-seed{seed}"
                console.rule(f"{row.name}, seed {seed}")
                result = Measured(_train_and_score(run, config, settings, console), *_cost(run, config))
                measured.setdefault(row.name, []).append(result)
                records[f"{row.name}, seed {seed}"] = _record(run, row.name, seed, result)
                distributed.on_rank_zero(lambda: write_json_lines(folder / RUNS, records.values()))
        return Path(distributed.on_rank_zero(lambda: str(write_table(folder, name, rows, measured, settings, console))))


def _file_name(row: TableRow) -> str:
    return re.sub(r"[^a-z0-9]+", "-", row.name.lower()).strip("-")


def _open_folder(folder: Path, rows: Sequence[TableRow], settings: Ablate) -> None:
    """Create the folder, or check that it was started with the same rows; rows and seeds may be added."""
    _check(rows, settings)
    _refuse_foreign(folder)
    path = folder / ROWS
    started, requested = read_json(path, {}), {row.name: _row_settings(row.config) for row in rows}
    for row, settings_of_row in requested.items():
        before = _row_settings(Config()) | started.get(row, settings_of_row)  # settings added since had their defaults
        for name, value in settings_of_row.items():
            if before.get(name) != value:
                raise UserError(
                    f"{folder} was started with {name} = {before.get(name)!r} for '{row}', not {value!r}; "
                    "choose another --folder."
                )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"Cannot create {folder}: {error.strerror}; choose another --folder.") from None
    write_json(path, started | requested)


def _refuse_foreign(folder: Path) -> None:
    """Raise a `UserError` for a file, or for a folder of other files, so that they are never mixed with a table."""
    if folder.is_file():
        raise UserError(f"{folder} is not a folder; choose another --folder.")
    is_table = (folder / ROWS).exists() or any(folder.glob(f"*-seed*/{layout.SETTINGS}"))
    if folder.exists() and not is_table and any(folder.iterdir()):
        raise UserError(f"{folder} holds other files and no table of scfs ablate; choose another --folder.")


def _check(rows: Sequence[TableRow], settings: Ablate) -> None:
    """Refuse what would fail later, before anything is trained."""
    if len({_file_name(row) for row in rows}) < len(rows):
        raise UserError("Two rows of the table are the same; give each backbone, or number of local views, once.")
    if len({*settings.seeds}) < len(settings.seeds):
        raise UserError("A seed is given twice and would count twice; give each of --seeds once.")
    for source, classes in {(_eval_data(row.config, settings), _eval_classes(row.config, settings)) for row in rows}:
        open_labelled(source, classes=classes)
    num_images: dict[str, int] = {}  # by data settings, which most rows share
    for row in rows:
        data, key = row.config.data, row.config.data.model_dump_json()
        if key not in num_images:
            num_images[key] = len(open_train(data.source, classes=data.classes, max_pixels=data.max_pixels))
        config, _ = resolve(row.config, num_images[key], torch.device("cpu"))
        with torch.device("meta"):
            build_method(config)


def _row_settings(config: Config) -> dict[str, Any]:
    """The settings that define a row."""
    values = flat(config.model_dump(mode="json", exclude={"seed"}))
    return {name: value for name, value in values if not is_free(name)}


def _eval_data(config: Config, settings: Ablate) -> str:
    return settings.data or config.data.source


def _eval_classes(config: Config, settings: Ablate) -> str:
    """The recipe's class list, which applies to the recipe's data only."""
    return "" if settings.data else config.data.classes


def _train_and_score(run: Path, config: Config, settings: Ablate, console: Console) -> dict[str, Metric]:
    """The metrics of a run by column; trains it first if needed."""
    if not (run / TRAINED).exists():
        _pretrain(run, config, console)
        distributed.on_rank_zero((run / TRAINED).touch)
    metrics: dict[str, Metric] = {}
    for scoring in _scorings(config, settings):
        metric = _recorded(run, scoring)
        if metric is None:
            metric = by_name(scoring.evaluate(str(run), scoring.settings, console))[scoring.metric]
        metrics[scoring.column] = metric
    return metrics


def _scorings(config: Config, settings: Ablate) -> list[Scoring]:
    """k-NN and, unless off, linear probes."""
    common: dict[str, Any] = {
        "data": _eval_data(config, settings),
        "classes": _eval_classes(config, settings),
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
    in_folder = config.model_copy(update={"run": config.run.model_copy(update={"folder": str(run)})})
    try:
        pretrain(in_folder, name=run.name, resume=True, console=console, next_commands=False)
    except KeyboardInterrupt as stop:
        stopped = str(stop).partition(";")[0]
        raise KeyboardInterrupt(f"{stopped} of {run}; run the same command again to resume.") from None


def _recorded(run: Path, scoring: Scoring) -> Metric | None:
    """The metric of a run's latest evaluation with the same settings, if any."""
    given = with_absolute_paths(scoring.settings)
    expected = {name: value for name, value in given.items() if name not in FREE} | {"target": str(run)}
    for result in reversed(distributed.on_rank_zero(lambda: read_results(run))):
        is_same = all(result.settings.get(name) == value for name, value in expected.items())
        metrics = by_name(result.metrics)
        if result.evaluation == scoring.evaluation and scoring.metric in metrics and is_same:
            return metrics[scoring.metric]
    return None


def _read_runs(folder: Path) -> dict[str, dict[str, Any]]:
    """The records of runs that finished earlier, by row and seed."""
    path = folder / RUNS
    try:
        return {f"{run['row']}, seed {run['seed']}": run for run in read_json_lines(path)}
    except KeyError:
        raise damaged(path) from None


def _record(run: Path, row: str, seed: int, result: Measured) -> dict[str, Any]:
    """The record of a finished run: what was run, where, and its scores."""
    environment = (distributed.on_rank_zero(lambda: layout.read_environment(run)) or [{}])[-1]
    made_by = {name: environment.get(name) for name in ("commit", "device", "threads")}
    made_by["command"] = environment.get("command", [])[1:]  # without the path of the program
    cost = {"images_per_second": round(result.images_per_second, 1), "hours": round(result.hours, 3)}
    scores = {name: {"value": each.value, "interval": each.interval} for name, each in result.metrics.items()}
    return {"row": row, "seed": seed, **made_by, **cost, "scores": scores}


def _cost(run: Path, config: Config) -> tuple[float, float]:
    """Images per second during training, and the hours the whole run took at that speed."""
    rows = layout.read_metrics(run)
    speeds = [row["images_per_second"] for row in rows if "images_per_second" in row]
    if not speeds:
        return 0.0, 0.0
    speed = statistics.median(speeds)
    return speed, max(row["step"] for row in rows) * config.optim.batch_size / speed / 3600
