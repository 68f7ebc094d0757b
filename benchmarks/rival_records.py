"""The runs of rivals.py: those planned, and the finished ones, one line of JSON each, with the rates they choose."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from rival_methods import CHANGES, OURS, RIVALS, settings_of

FACTORS = (1 / 3, 1.0, 3.0, 9.0)  # of the published learning rate
SIZES = {"imagenette": 96, "pets": 84, "scenes": 96}  # of the scored views
CHANGED = tuple(f"scfs, {name}" for name in CHANGES)
METHODS = (*(name for name in OURS if name not in CHANGED), *RIVALS)
RECORDS = Path(__file__).parent / "records" / "rivals.jsonl"
Record = dict[str, Any]


class Planned(NamedTuple):
    """A run of the table."""

    data: str
    minutes: float
    method: str
    seed: int


LEADERS = ("scfs", "dino")
SEEDED = (*LEADERS, "dino-multilayer", "simclr")  # with three seeds: ours and the best of the others
COMPARED = (*SEEDED, *(name for name in RIVALS if name not in SEEDED))
PLAN = [  # most important first
    *(Planned("imagenette", 10, method, 0) for method in COMPARED),
    *(Planned("imagenette", 10, method, seed) for method in SEEDED for seed in (1, 2)),
    *(Planned("imagenette", 30, method, 0) for method in SEEDED),
    *(Planned(data, 10, method, 0) for data in ("scenes", "pets") for method in COMPARED),
    *(Planned("imagenette", 90, method, 0) for method in LEADERS),
    *(Planned("imagenette", 30, method, seed) for method in SEEDED for seed in (1, 2)),
    *(Planned(data, 30, method, 0) for data in SIZES for method in COMPARED),
]


def read_records(path: Path) -> list[Record]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def same_work(record: Record, work: Record) -> bool:
    return all(record.get(name) == value for name, value in work.items())


def best_factor(records: list[Record], method: str) -> float:
    """The best factor on held-out photos of Imagenette, in the longest complete trial; 1 if there is none."""
    tried: dict[float, dict[float, float]] = {}
    for r in records:
        if r["held_out"] and r["method"] == method and r["data"] == "imagenette":
            tried.setdefault(r["minutes"], {})[r["lr_factor"]] = r["scores"][-1]["knn"]
    complete = [minutes for minutes, scores in tried.items() if len(scores) == len(FACTORS)]
    return max(tried[max(complete)].items(), key=lambda item: item[1])[0] if complete else 1.0


def is_current(record: Record) -> bool:
    """Whether a run was made with the settings that its method has now."""
    method = record["method"]
    return method in (*METHODS, *CHANGED) and record["settings"] == settings_of(method)
