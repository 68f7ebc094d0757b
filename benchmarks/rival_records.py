"""The runs of rivals.py: those planned, and the finished ones, one line of JSON each, with the rates they choose."""

import json
import math
import re
import statistics
from pathlib import Path
from typing import Any, NamedTuple

from rival_settings import CHANGES, OURS, RIVAL_VIEWS, settings_of

from scfs.runs.files import locked, write_json

FACTORS = (1 / 3, 1.0, 3.0, 9.0)  # of the published learning rate, which every trial has; larger ones may follow
SIZES = {"imagenette": 96, "pets": 84, "scenes": 96}  # of the scored views
CHANGED = tuple(f"scfs, {name}" for name in CHANGES)
METHODS = (*(name for name in OURS if name not in CHANGED), *RIVAL_VIEWS)
RECORDS = Path(__file__).parent / "records" / "rivals.jsonl"
# A budget is CPU time on the machine of the first runs: on faster machines, runs get no more epochs.
REFERENCE_SECONDS = 1.25  # of a step of scfs in bfloat16 there
RATIOS = Path(__file__).parent / "records" / "step_ratios.json"  # of other steps to it, by precision and method
Record = dict[str, Any]


class Planned(NamedTuple):
    """A run of the table."""

    data: str
    minutes: float
    method: str
    seed: int


LEADERS = ("scfs", "dino")
SEEDED = (*LEADERS, "dino-multilayer", "simclr")  # with three seeds: ours and the best of the others
COMPARED = (*SEEDED, *(name for name in RIVAL_VIEWS if name not in SEEDED))
PLAN = [  # most important first
    *(Planned("imagenette", 10, method, 0) for method in COMPARED),
    *(Planned("imagenette", 10, method, seed) for method in SEEDED for seed in (1, 2)),
    *(Planned("imagenette", 30, method, 0) for method in SEEDED),
    *(Planned(data, 10, method, 0) for data in ("scenes", "pets") for method in COMPARED),
    *(Planned("imagenette", 90, method, 0) for method in LEADERS),
    *(Planned("imagenette", 30, method, seed) for method in SEEDED for seed in (1, 2)),
    *(Planned(data, 30, method, 0) for data in SIZES for method in COMPARED),
]


def read_ratios(precision: str) -> dict[str, float]:
    """The processor time of a step of every method that was timed, relative to scfs in bfloat16."""
    ratios: dict[str, dict[str, float]] = json.loads(RATIOS.read_text())
    return ratios.get(precision, {})


def add_ratios(precision: str, ratios: dict[str, float]) -> None:
    """Store what was timed; several processes may."""
    with locked(RATIOS):
        known = json.loads(RATIOS.read_text())
        known[precision] = dict(sorted({**known.get(precision, {}), **ratios}.items()))
        write_json(RATIOS, known)


def reference_seconds(method: str, precision: str) -> float:
    """Processor time of a step of a method and its data on the reference core."""
    return REFERENCE_SECONDS * read_ratios(precision)[method]


def read_records(path: Path) -> list[Record]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def same_work(record: Record, work: Record) -> bool:
    return all(record.get(name) == value for name, value in work.items())


def name_of(work: Record) -> str:
    """The folder of a run, with everything that tells it from others."""
    method = re.sub(r"[^a-z0-9]+", "-", work["method"])
    how = f"{work['minutes']:g}min-{work['precision']}-{work['settings']}-lr{work['lr_factor']:.2g}"
    return f"{work['data']}-{method}-{how}-seed{work['seed']}{'-held-out' * work['held_out']}"


def best_factor(records: list[Record], method: str) -> float:
    """The best factor on held-out photos of Imagenette, on average over seeds; 1 if there is no complete trial.

    Of several complete trials that with the method's present settings counts, then the longest; of equal factors the
    one nearest to 1.
    """
    trials: dict[tuple[bool, float, str], dict[float, list[float]]] = {}
    for r in records:
        if r["held_out"] and r["method"] == method and r["data"] == "imagenette":
            trial = trials.setdefault((is_current(r), r["minutes"], r["settings"]), {})
            trial.setdefault(r["lr_factor"], []).append(r["scores"][-1]["knn"])
    complete = [trial for trial in trials if {*FACTORS} <= {*trials[trial]}]
    if not complete:
        return 1.0
    means = {factor: statistics.mean(scores) for factor, scores in trials[max(complete)].items()}
    return max(means, key=lambda factor: (means[factor], -abs(math.log(factor))))


def is_current(record: Record) -> bool:
    """Whether a run was made with the settings that its method has now."""
    method = record["method"]
    return method in (*METHODS, *CHANGED) and record["settings"] == settings_of(method)
