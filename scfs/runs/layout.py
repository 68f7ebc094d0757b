"""What a run folder holds, by name."""

import functools
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import metadata
from pathlib import Path
from typing import Any

import tomli_w
import torch

from scfs import __version__
from scfs.errors import UserError
from scfs.regular_file import read_regular
from scfs.runs.files import MOST_BYTES, read_json, write_json, write_text

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
    try:
        check_free(folder, resume=resume)
        folder.mkdir(parents=True, exist_ok=resume)
    except OSError as error:
        raise UserError(f"Cannot create run folder {folder}: {error.strerror}; choose another --run.folder.") from None


@contextmanager
def created(folder: Path, *, resume: bool) -> Iterator[None]:
    """A run folder to write the first files to; if they cannot be written, a new folder is removed again."""
    is_new = not os.path.lexists(folder)  # False for a name that is too long
    create(folder, resume=resume)
    try:
        yield
    except Exception:
        if is_new:
            shutil.rmtree(folder, ignore_errors=True)
        raise


def check_free(folder: Path, *, resume: bool) -> None:
    """Raise a `UserError` for a folder that no run can be written to, so that nothing else is ever mixed with a run."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder; choose another --run.folder.")
    is_run = (folder / SETTINGS).is_file()
    if resume and not is_run and any(folder.iterdir()):
        raise UserError(f"{folder} holds other files and is not a run folder; choose another --run.folder.")
    if not resume:
        advice = "add --resume to continue it, or choose" if is_run else "it is not a run; choose"
        raise UserError(f"Run folder {folder} exists; {advice} another --run.folder.")


def check_history(folder: Path, checkpoint_every_steps: int) -> None:
    """Raise a `UserError` if a run without a checkpoint has had one: starting again would replace its history."""
    steps = max((row["step"] for row in read_metrics(folder)), default=0)
    if steps > checkpoint_every_steps or (folder / RESULTS).exists():
        raise UserError(
            f"{folder} was trained for {steps} steps, but its checkpoint {LAST} is gone; restore it to resume, or omit "
            "--resume and choose another --run.folder to start again."
        )


def write_settings(folder: Path, settings: dict[str, Any]) -> None:
    """The resolved settings as a recipe that repeats the run."""
    text = tomli_w.dumps(settings)
    try:
        write_text(folder / SETTINGS, text)
    except UnicodeEncodeError as error:
        line = next(line for line in text.splitlines() if not _is_utf8(line))
        raise UserError(
            f"A run cannot record {line}: this name is not UTF-8; rename the file, or link to it."
        ) from error


def _is_utf8(text: str) -> bool:
    return text.encode(errors="ignore").decode() == text


def environment(device: torch.device) -> dict[str, Any]:
    """Versions, device, threads, commit and command of this process."""
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
        "commit": commit_of(Path(__file__).parents[2]),
        "command": sys.argv,
    }


@functools.cache
def commit_of(checkout: Path) -> str:
    """The commit that a folder is a checkout of, marked if files differ; empty if it is none. git writes nothing."""
    if not (checkout / ".git").exists():
        return ""
    git = ["git", "--no-optional-locks", "-C", str(checkout), "status"]
    options = ["--porcelain=v2", "--branch", "--untracked-files=no"]
    with suppress(OSError, subprocess.SubprocessError):
        status = subprocess.run([*git, *options], capture_output=True, text=True, check=True, timeout=10).stdout
        commit = re.search(r"^# branch\.oid ([0-9a-f]{10})", status, re.MULTILINE)
        is_changed = bool(re.search(r"^[^#]", status, re.MULTILINE))
        return f"{commit[1]}{'-dirty' if is_changed else ''}" if commit else ""
    return ""


def write_environment(folder: Path, content: dict[str, Any]) -> None:
    """Add the record of a start, and what a training started from; a resumed run keeps the earlier ones."""
    path = folder / ENVIRONMENT
    write_json(path, [*read_json(path, []), content])


def read_environment(folder: Path) -> list[dict[str, Any]]:
    """The records of a run's starts, oldest first; empty if there are none."""
    return [record for record in read_json(folder / ENVIRONMENT, []) if isinstance(record, dict)]


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """Every row that the run has logged; a line cut short by a crash is skipped."""
    return [row for line in metrics_lines(folder) if (row := parse_row(line)) is not None]


def metrics_lines(folder: Path) -> list[str]:
    """The lines of a run's log; empty if there is none yet."""
    path = folder / METRICS
    try:
        return read_regular(path, limit=MOST_BYTES).decode().splitlines()
    except (FileNotFoundError, NotADirectoryError):
        return []
    except UnicodeDecodeError:
        raise UserError(
            f"{path} is damaged: it is not text; restore it, or move it away to continue without the earlier curves."
        ) from None
    except IsADirectoryError:
        raise UserError(f"{path} is a folder; move it away to continue without the earlier curves.") from None
    except OSError as error:
        raise UserError(
            f"Cannot read {path}: {error.strerror}; move it away to continue without the earlier curves."
        ) from None


def parse_row(line: str) -> dict[str, Any] | None:
    """A row of a run's log; None if the line is damaged."""
    with suppress(ValueError):
        row = json.loads(line)
        return row if isinstance(row, dict) and isinstance(row.get("step"), int) else None
    return None
