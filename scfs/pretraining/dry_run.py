import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from torch import nn

from scfs.config import Config
from scfs.data.loader import MAX_WORKERS, centre_loader
from scfs.data.scene_source import SceneSource
from scfs.data.skipped import skipped_by_suffix, skipped_files
from scfs.data.sources import Source
from scfs.data.unreadable import num_allowed, readable_image
from scfs.data.views import MultiCrop
from scfs.distributed import choose_device, num_cores, on_rank_zero, process_group
from scfs.pretraining.ineffective import refuse_ineffective
from scfs.pretraining.opening import environment_line, print_line, print_opening
from scfs.pretraining.photo_size import large_photos
from scfs.pretraining.prepare import PreparedRun, prepare
from scfs.pretraining.timing import seconds_per_step
from scfs.recipe import Change
from scfs.runs import layout
from scfs.training.cpu import cpu_setup, peak_memory
from scfs.visualize.pictures import save_views

TIMED_STEPS, NUM_IMAGES = 4, 6
MIN_STEPS = 3  # per epoch; with fewer, a run of the usual length has hardly any steps
MAX_CHECKED = 2000  # images to decode in search of unreadable ones; of more, a sample
MAX_NAMED = 5


def preview(config: Config, *, name: str, changes: Sequence[Change], console: Console) -> Path:
    """Estimate the cost of a run from a few timed steps, which are discarded, and draw example views: `--dry-run`.

    Returns the path of the picture, the only file written, in the system's temporary folder.
    """
    refuse_ineffective(config, changes)
    device = choose_device(config.run.device)
    with process_group(device), cpu_setup(device, config.run.threads):
        run = prepare(config, device, console)
        checked, unreadable = on_rank_zero(lambda: check_images(run.source, processes=bool(run.workers)))
        images = _counted(len(run.source), skipped_by_suffix(config.data.source), checked, len(unreadable))
        costs = _costs(run, seconds_per_step(run.learner, run.batches(0), ahead=run.batches_ahead, timed=TIMED_STEPS))
        print_opening(
            f"{name}: dry run, {len(run.source)} images, {run.total_steps} steps, {device}",
            run.config,
            console,
            changes=changes,
            choices=run.choices,
            facts={"environment": environment_line(layout.environment(device)), "images": images, **costs},
        )
        advice = on_rank_zero(lambda: large_photos(run.config, run.source))
        for warning in (*_unreadable_warnings(run, checked, unreadable), *_step_warnings(run), advice):
            if warning:
                print_line(warning, console, style="yellow")
        picture = on_rank_zero(lambda: draw_views(run))
        print_line(f"example views: {picture}", console)
        print_line("Nothing was trained or saved; omit --dry-run to start.", console)
    return Path(picture)


def check_images(source: Source, *, processes: bool) -> tuple[int, list[str]]:
    """How many images were decoded, all or an evenly spaced sample, and which of them cannot be read, and why.

    processes: whether other processes may decode, one per core.
    """
    if isinstance(source, SceneSource):  # rendered, not read
        return 0, []
    indices = np.linspace(0, len(source) - 1, min(len(source), MAX_CHECKED)).round().astype(int).tolist()
    workers = min(num_cores(), MAX_WORKERS) if processes else 0
    batches = centre_loader(source, 8, indices, batch_size=16, workers=workers, pin=False)
    return len(indices), [problem for batch in batches for problem in batch.unreadable if problem]


def draw_views(run: PreparedRun) -> str:
    """Draw the views of the first images; returns the path of the picture."""
    images = [readable_image(run.source, i)[0] for i in range(min(NUM_IMAGES, len(run.source)))]
    multi_crop = MultiCrop(**run.config.crops | {"colours": "loader"})
    with tempfile.NamedTemporaryFile(prefix="scfs-views-", suffix=".png", delete=False) as file:
        picture = Path(file.name)
    save_views(picture, images, [multi_crop(image, run.config.seed + i) for i, image in enumerate(images)])
    return str(picture)


def _costs(run: PreparedRun, seconds: float) -> dict[str, Any]:
    student, optim = run.learner.method.student, run.config.optim
    return {
        "steps": f"{run.total_steps} ({run.steps_per_epoch} per epoch, {optim.epochs} epochs)",
        "parameters": f"{_millions(student)} in the student, {_millions(student.backbone)} of them in its backbone",
        "memory": f"about {peak_memory(run.device) / 2**30:.1f} GB per process, without data loader workers",
        "time per step": f"about {seconds:.2f} s, {optim.batch_size / seconds:.0f} images/s",
        "total time": f"about {_duration(seconds * run.total_steps)}, without evaluation",
    }


def _counted(used: int, skipped: Counter[str], checked: int, unreadable: int) -> str:
    parts = [f"{used} used"]
    if skipped:
        parts.append(skipped_files(skipped))
    if checked:
        parts.append(f"{unreadable} unreadable of {checked} checked")
    return ", ".join(parts)


def _unreadable_warnings(run: PreparedRun, checked: int, unreadable: Sequence[str]) -> list[str]:
    lines = [f"Unreadable: {problem}" for problem in unreadable[:MAX_NAMED]]
    if len(unreadable) > MAX_NAMED:
        lines.append(f"... and {len(unreadable) - MAX_NAMED} more")
    allowed = num_allowed(len(run.source), run.config.data.max_unreadable)
    if checked and len(unreadable) / checked * len(run.source) > allowed:
        lines.append(
            f"Warning: the run would stop: more than the {allowed} allowed are unreadable; repair or remove them."
        )
    return lines


def _step_warnings(run: PreparedRun) -> list[str]:
    if run.steps_per_epoch >= MIN_STEPS:
        return []
    return [
        f"Warning: an epoch has only {run.steps_per_epoch} step(s) of {run.config.optim.batch_size} images; "
        "lower optim.batch_size, or raise optim.epochs."
    ]


def _millions(module: nn.Module) -> str:
    return f"{sum(p.numel() for p in module.parameters()) / 1e6:.1f} M"


def _duration(seconds: float) -> str:
    minutes = max(1, round(seconds / 60))
    return f"{minutes // 60} h {minutes % 60:02d} min" if minutes >= 60 else f"{minutes} min"
