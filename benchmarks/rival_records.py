"""The finished runs of rivals.py, one line of JSON each, and the learning rates that they choose."""

import json
from pathlib import Path
from typing import Any

from rival_methods import CHANGES, OURS, RIVALS, settings_of

FACTORS = (1 / 3, 1.0, 3.0, 9.0)  # of the published learning rate
SIZES = {"imagenette": 96, "pets": 84, "scenes": 96}  # of the scored views
CHANGED = tuple(f"scfs, {name}" for name in CHANGES)
METHODS = (*(name for name in OURS if name not in CHANGED), *RIVALS)
RECORDS = Path(__file__).parent / "records" / "rivals.jsonl"
Record = dict[str, Any]


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
