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
from scfs.runs.json_files import read_json, write_json

SETTINGS, METRICS, LAST = "settings.toml", "metrics.jsonl", "last.pt"


def free_path(name: str, suffix: str = "") -> Path:
    """runs/NAME, or the next free runs/NAME-2, runs/NAME-3, ...; with a suffix, a file's."""
    path, number = Path("runs") / f"{name}{suffix}", 1
    while path.exists():
        number += 1
        path = Path("runs") / f"{name}-{number}{suffix}"
    return path


def create(folder: Path, *, resume: bool) -> None:
    """Make a new run folder; one that exists is never written over, only gone on with."""
    if folder.exists() and not resume:
        raise UserError(f"Run folder {folder} exists; add --resume to go on with it, or choose another --run.folder.")
    try:
        folder.mkdir(parents=True, exist_ok=resume)
    except OSError as error:
        raise UserError(f"Cannot create run folder {folder}: {error.strerror}; choose another --run.folder.") from None


def write_settings(folder: Path, settings: dict[str, Any]) -> None:
    """The resolved settings as a recipe that repeats the run."""
    (folder / SETTINGS).write_text(tomli_w.dumps(settings), encoding="utf-8")


def environment(device: torch.device) -> dict[str, Any]:
    """What the run runs on."""
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
    """One record per start: a resumed run keeps those before it."""
    path = folder / "environment.json"
    write_json(path, [*read_json(path, []), content])


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """Every row that the run has logged; a line that a crash cut short is passed over."""
    path, rows = folder / METRICS, []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        with suppress(json.JSONDecodeError):
            rows.append(json.loads(line))
    return rows
