import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from scfs.distributed import on_rank_zero
from scfs.runs.files import damaged, locked, read_json, write_json
from scfs.runs.layout import LAST, RESULTS, SETTINGS
from scfs.runs.metric import Metric, as_json, from_json

# Settings that a protocol mentions only if they differ from these.
USUAL = {"temperature": 0.07, "blocks": 4}


@dataclass(frozen=True)
class Result:
    """One evaluation of a backbone: what was scored, how, and the metrics it got.

    Metrics of two results are compared where evaluation, data and protocol are the same.
    """

    evaluation: str  # "knn"
    metrics: Sequence[Metric]
    data: str  # as the user gave it
    protocol: str = ""  # what else must be equal for a fair comparison, such as "96 px, 100 epochs"
    settings: Mapping[str, Any] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)  # other findings
    seconds: float = 0.0
    environment: Mapping[str, Any] = field(default_factory=dict)
    when: str = ""


def run_of(target: str) -> Path | None:
    """The run folder of a target: the target itself, or the folder of a checkpoint."""
    path = Path(target).expanduser()
    folder = path if path.is_dir() else path.parent
    return folder if (folder / SETTINGS).exists() and path.exists() else None


def results_folder(target: str, console: Console) -> Path | None:
    """Where the results of a target will be saved: its run folder, unless it has none or it cannot be written to.

    Rank zero decides for all.
    """

    def found() -> Path | None:
        folder = run_of(target)
        if folder is None:
            return None
        read_results(folder)  # a damaged file is better found before the work
        if not os.access(folder, os.W_OK):
            console.print(f"{folder} cannot be written to: nothing will be saved there.", style="yellow")
            return None
        return folder

    return on_rank_zero(found)


def read_results(folder: Path) -> list[Result]:
    """Every evaluation of a run, oldest first."""
    path = folder / RESULTS
    entries = read_json(path, [])
    try:
        return [_read(entry) for entry in entries]
    except (AttributeError, KeyError, TypeError, ValueError):
        raise damaged(path) from None


def record(folder: Path | None, result: Result, console: Console) -> None:
    """Save a result in its run folder, and print where; without a folder nothing is saved."""
    if folder is not None:
        console.print(f"results  {add_result(folder, result)}")


def add_result(folder: Path, result: Result) -> Path:
    """Append a result to a run's results; two evaluations that end at the same time are both recorded."""
    path = folder / RESULTS
    entry = {
        "when": result.when or datetime.now(UTC).isoformat(timespec="seconds"),
        "evaluation": result.evaluation,
        "data": result.data,
        "protocol": result.protocol,
        "metrics": as_json(result.metrics),
        "details": dict(result.details),
        "settings": dict(result.settings),
        "seconds": round(result.seconds, 1),
        "environment": dict(result.environment),
    }
    with locked(path):
        read_results(folder)  # a damaged file is never overwritten
        write_json(path, [*read_json(path, []), entry])
    return path


def protocol_of(settings: Mapping[str, Any]) -> str:
    """The checkpoint if it is not the last one, the size, the length of training, the network, and unusual settings."""
    parts = []
    if settings.get("classes"):
        parts.append(Path(settings["classes"]).stem)
    checkpoint = Path(settings.get("target", ""))
    if checkpoint.suffix == ".pt" and checkpoint.name != LAST:
        parts.append(checkpoint.stem)
    if "size" in settings:
        parts.append(f"{settings['size']} px")
    if settings.get("steps"):
        parts.append(f"{settings['steps']} steps")
    elif "epochs" in settings:
        parts.append(f"{settings['epochs']} epochs")
    if settings.get("network") == "student":
        parts.append("student")
    parts += [f"{name} {settings[name]:g}" for name, usual in USUAL.items() if settings.get(name, usual) != usual]
    return ", ".join(parts)


def _read(entry: dict[str, Any]) -> Result:
    if "figures" in entry:
        return _read_figures(entry)
    known = {name: value for name, value in entry.items() if name != "metrics"}
    return Result(**known, metrics=from_json(entry["metrics"]))


def _read_figures(entry: dict[str, Any]) -> Result:
    """An entry of version 0.1, where every figure was a top-1 and a top-5."""
    evaluation, protocol, metrics = entry["evaluation"], protocol_of(entry["settings"]), []
    for name, figure in entry["figures"].items():
        prefix, top1 = (f"{name} ", "top-1") if evaluation == "knn" else ("", "top-1")
        if evaluation == "linear" and name == "cached":
            protocol = f"cached, {protocol}"
        if evaluation == "finetune":
            labels, _, mean = name.partition(", ")
            protocol, top1 = f"{labels}, {protocol}", mean or top1
        metrics.append(Metric(f"{prefix}{top1}", figure["top1"], tuple(figure["interval"])))
        metrics.append(Metric(f"{prefix}top-5", figure["top5"]))
    known = {name: entry[name] for name in ("seconds", "environment", "when") if name in entry}
    settings = entry["settings"]
    return Result(evaluation, metrics, settings["data"], protocol, settings, entry.get("others", {}), **known)
