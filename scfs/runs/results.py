import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from scfs.distributed import on_rank_zero
from scfs.runs import layout
from scfs.runs.json_files import read_json, write_json

RESULTS = "results.json"


def run_of(target: str) -> Path | None:
    """The run folder that a target is, or is a checkpoint of."""
    path = Path(target)
    folder = path if path.is_dir() else path.parent
    return folder if (folder / layout.SETTINGS).exists() and path.exists() else None


def results_folder(target: str, console: Console) -> Path | None:
    """Where the results of a target will be kept: its run folder, unless it has none or that cannot be written to.

    The first process decides for all.
    """

    def found() -> Path | None:
        folder = run_of(target)
        if folder is None:
            return None
        read_results(folder)  # a damaged file is better found now
        if not os.access(folder, os.W_OK):
            console.print(f"{folder} cannot be written to: nothing will be kept there.", style="yellow", soft_wrap=True)
            return None
        return folder

    return on_rank_zero(found)


def read_results(folder: Path) -> list[dict[str, Any]]:
    """Every evaluation of a run, oldest first."""
    return read_json(folder / RESULTS, [])


def record(
    folder: Path | None,
    evaluation: str,
    figures: dict[str, Any],
    settings: dict[str, Any],
    *,
    seconds: float,
    device: torch.device,
    console: Console,
    others: dict[str, Any] | None = None,
) -> None:
    """Keep an evaluation with the run it is of, and say where; without a folder nothing is kept.

    figures: what runs are compared by; others: what else there is to know.
    """
    if folder is None:
        return
    entry = {
        "evaluation": evaluation,
        "figures": figures,
        **({"others": others} if others else {}),
        "settings": settings,
        "seconds": round(seconds, 1),
        "environment": layout.environment(device),
    }
    console.print(f"results  {add_result(folder, entry)}", highlight=False, soft_wrap=True)


def add_result(folder: Path, entry: dict[str, Any]) -> Path:
    """Append an evaluation to a run's results."""
    path = folder / RESULTS
    entry = {"when": datetime.now(UTC).isoformat(timespec="seconds"), **entry}
    write_json(path, [*read_results(folder), entry])
    return path
