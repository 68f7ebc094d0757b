import importlib
import json
import logging
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from scfs.distributed import is_rank_zero, on_rank_zero
from scfs.errors import UserError
from scfs.extras import check_extra, missing_packages
from scfs.runs.files import append_text, write_text
from scfs.runs.layout import METRICS, metrics_lines, parse_row
from scfs.runs.metric import PER_CENT, Metric, as_json, from_json

LogRow = Mapping[str, Any]
LOGGER = logging.getLogger("scfs")
_listener: ContextVar[Callable[[LogRow], None] | None] = ContextVar("listener", default=None)


class Sink(Protocol):
    """A destination for rows of named numbers; each row has a `step`."""

    def write(self, row: LogRow) -> None: ...

    def close(self) -> None: ...


class MetricsLog:
    """Writes one row of named numbers per logged step to every sink.

    A service that fails, such as a tracking server that restarts, gets no more rows; training goes on without it.
    """

    def __init__(self, sinks: Sequence[Sink]):
        self.sinks = list(sinks)

    def write(self, row: LogRow) -> None:
        """Append a row; it must have a `step`."""
        for sink in list(self.sinks):
            try:
                sink.write(row)
            except Exception as error:
                if isinstance(sink, JsonLines | Listener):
                    raise
                self.sinks.remove(sink)
                _warn_of(sink, "gets no more rows", error)


def _warn_of(sink: Sink, consequence: str, error: Exception) -> None:
    reason = next(iter(str(error).splitlines()), "") or type(error).__name__
    LOGGER.warning("%s failed (%s) and %s; metrics.jsonl has all rows.", type(sink).__name__, reason, consequence)


def _close(sink: Sink) -> None:
    """Close a sink at the end of a run, which must not fail because of it."""
    try:
        sink.close()
    except Exception as error:
        _warn_of(sink, "may lack the last rows", error)


@contextmanager
def open_log(
    folder: Path | None, start_step: int = 0, loggers: Sequence[str] = (), settings: dict[str, Any] | None = None
) -> Iterator[MetricsLog]:
    """metrics.jsonl and, if it is installed, TensorBoard in a folder, and the chosen loggers; only rank zero writes.

    However the block ends, every sink is flushed and closed. Without a folder nothing is logged.
    """
    sinks: list[Sink] = []
    with ExitStack() as stack:

        def open_sinks(folder: Path) -> None:
            folder.mkdir(exist_ok=True)
            chosen = [partial(LOGGERS[name], settings=settings or {}) for name in loggers]
            board = [] if missing_packages("tensorboard") else [TensorBoard]
            openers: list[Callable[[Path, int], Sink]] = [JsonLines, *board, *chosen]
            for open_sink in openers:
                sinks.append(open_sink(folder, start_step))
                stack.callback(_close, sinks[-1])
            if listener := _listener.get():
                sinks.append(Listener(listener))

        if folder is not None:
            on_rank_zero(lambda: open_sinks(folder) if is_rank_zero() else None)
        yield MetricsLog(sinks)


@contextmanager
def listening(listener: Callable[[LogRow], None] | None) -> Iterator[None]:
    """Call a function with each row that is logged inside the block, after it is in metrics.jsonl."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


class Listener:
    """A function of the caller's."""

    def __init__(self, function: Callable[[LogRow], None]):
        self.write = function

    def close(self) -> None:
        """The caller has all rows."""


class JsonLines:
    """metrics.jsonl. Rows after `start_step` are cut off, so a resumed run's file equals an uninterrupted one's."""

    def __init__(self, folder: Path, start_step: int):
        self.path = folder / METRICS
        rows = ((line, parse_row(line)) for line in metrics_lines(folder))
        kept = [line for line, row in rows if row and row["step"] <= start_step] if start_step else []
        write_text(self.path, "".join(line + "\n" for line in kept))

    def write(self, row: LogRow) -> None:
        try:
            append_text(self.path, json.dumps(row) + "\n")
        except FileNotFoundError:
            raise UserError(
                f"Run folder {self.path.parent} was removed during the run; restore it and resume, or start again."
            ) from None

    def close(self) -> None:
        """Every row is already written."""


class TensorBoard:
    """The same rows in TensorBoard; older points after `start_step`, all of them in a new run, are hidden."""

    def __init__(self, folder: Path, start_step: int):
        from torch.utils.tensorboard import SummaryWriter  # needs an extra

        self.board = SummaryWriter(str(folder / "tensorboard"), purge_step=start_step + 1 if start_step else 0)

    def write(self, row: LogRow) -> None:
        for name, value in _values(row).items():
            self.board.add_scalar(name, value, int(row["step"]))

    def close(self) -> None:
        self.board.close()


class Wandb:
    """The same rows in Weights & Biases. The run's id is stored in its folder, and a resumed run continues under it."""

    def __init__(self, folder: Path, start_step: int, settings: dict[str, Any]):
        wandb, id_file = importlib.import_module("wandb"), folder / "wandb_id"
        if not (start_step and id_file.exists()):
            write_text(id_file, uuid.uuid4().hex)
        run_id = id_file.read_text(encoding="utf-8")
        self.run = wandb.init(project="scfs", name=folder.name, id=run_id, resume="allow", config=settings)

    def write(self, row: LogRow) -> None:
        self.run.log(_values(row), step=int(row["step"]))

    def close(self) -> None:
        self.run.finish()


class Mlflow:
    """The same rows in MLflow, at MLFLOW_TRACKING_URI. As with Wandb, a resumed run continues under its id."""

    def __init__(self, folder: Path, start_step: int, settings: dict[str, Any]):
        self.mlflow, id_file = importlib.import_module("mlflow"), folder / "mlflow_id"
        self.mlflow.set_experiment("scfs")
        if start_step and id_file.exists():
            self.mlflow.start_run(run_id=id_file.read_text(encoding="utf-8"))
        else:
            run = self.mlflow.start_run(run_name=folder.name)
            write_text(id_file, run.info.run_id)
        self.mlflow.log_dict(settings, "settings.json")

    def write(self, row: LogRow) -> None:
        self.mlflow.log_metrics(_values(row), step=int(row["step"]))

    def close(self) -> None:
        self.mlflow.end_run()


LOGGERS: dict[str, Callable[..., Sink]] = {"wandb": Wandb, "mlflow": Mlflow}


def check_loggers(names: Sequence[str]) -> None:
    """Raise a `UserError` for loggers that are not installed, before anything is created."""
    for name in names:
        check_extra(name, f"The logger {name}")


def _values(row: LogRow) -> dict[str, float]:
    return {name: value for name, value in row.items() if name not in ("step", "metrics")}


def metrics_row(step: int, epoch: float, metrics: Sequence[Metric]) -> LogRow:
    """The row of an evaluation during training: each value under its key, for loggers that accept only numbers."""
    values = {metric.key: metric.value for metric in metrics}
    return {"step": step, "epoch": epoch, **values, "metrics": as_json(metrics)}


def logged_metrics(rows: Sequence[LogRow]) -> dict[str, list[tuple[int, Metric]]]:
    """The metrics of a run's evaluations during training: by name, the step and the metric, oldest first."""
    found: dict[str, list[tuple[int, Metric]]] = {}
    for row in rows:
        metrics = from_json(row["metrics"]) if "metrics" in row else _version_0_1(row)
        for metric in metrics:
            found.setdefault(metric.name, []).append((int(row["step"]), metric))
    return found


def summarise(rows: Sequence[LogRow]) -> str:
    """The first and last score of a run: k-NN top-1 or, without labels, the first metric that was logged."""
    logged = logged_metrics(rows)
    if not logged:
        return "No score was computed."
    points = logged.get("k-NN top-1") or next(iter(logged.values()))
    (_, before), (_, after) = points[0], points[-1]
    gain, unit = after.scale * (after.value - before.value), after.unit
    values = f"{before.shown()}{unit} at the start, {after.shown()}{unit} after training"
    return f"{after.name}: {values} ({gain:+.1f}{' points' if unit == PER_CENT else unit})"


def _version_0_1(row: LogRow) -> list[Metric]:
    known = (Metric("RankMe", 0.0, unit=""), Metric("k-NN top-1", 0.0), Metric("k-NN top-5", 0.0))
    return [replace(metric, value=row[metric.key]) for metric in known if metric.key in row]
