"""What a run folder holds, by name."""

import json
import platform
import sys
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

import tomli_w
import torch

from scfs import __version__
from scfs.errors import UserError
from scfs.runs.files import read_json, write_json, write_text

SETTINGS = "settings.toml"  # a recipe that repeats the run
ENVIRONMENT = "environment.json"  # one record per start
METRICS = "metrics.jsonl"  # one row per logged step
LAST = "last.pt"  # everything needed to resume, and the backbone
RESULTS = "results.json"  # every evaluation
UNREADABLE = "unreadable.txt"  # images that could not be read
REPORT = "report"  # pictures and the page


def free_path(name: str, suffix: str = "") -> Path:
    """runs/NAME, or the next free runs/NAME-2, runs/NAME-3, ...; with a suffix, a file."""
    path, number = Path("runs") / f"{name}{suffix}", 1
    while path.exists():
        number += 1
        path = Path("runs") / f"{name}-{number}{suffix}"
    return path


def create(folder: Path, *, resume: bool) -> None:
    """Make a new run folder; an existing one is never overwritten, only resumed."""
    if folder.exists() and not resume:
        raise UserError(f"Run folder {folder} exists; add --resume to continue it, or choose another --run.folder.")
    try:
        folder.mkdir(parents=True, exist_ok=resume)
    except OSError as error:
        raise UserError(f"Cannot create run folder {folder}: {error.strerror}; choose another --run.folder.") from None


def write_settings(folder: Path, settings: dict[str, Any]) -> None:
    """The resolved settings as a recipe that repeats the run."""
    write_text(folder / SETTINGS, tomli_w.dumps(settings))


def environment(device: torch.device) -> dict[str, Any]:
    """Versions, device, threads and command of this process."""
    packages = ("torch", "torchvision", "timm", "numpy", "pillow")
    return {
        "scfs": __version__,
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "packages": {name: metadata.version(name) for name in packages},
        "device": torch.cuda.get_device_name(device)
        if device.type == "cuda"
        else f"{device.type} {platform.machine()}",
        "threads": torch.get_num_threads(),
        "command": sys.argv,
    }


def write_environment(folder: Path, content: dict[str, Any]) -> None:
    """Add the record of a start: a resumed run keeps the earlier ones."""
    path = folder / ENVIRONMENT
    write_json(path, [*read_json(path, []), content])


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """Every row that the run has logged; a line cut short by a crash is skipped."""
    path, rows = folder / METRICS, []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        with suppress(json.JSONDecodeError):
            rows.append(json.loads(line))
    return rows
