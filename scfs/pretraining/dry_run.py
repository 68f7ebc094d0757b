import time
from collections import Counter
from pathlib import Path

from rich.console import Console
from torch import nn

from scfs.config import Config
from scfs.data.skipped import skipped_by_suffix
from scfs.data.unreadable import readable_image
from scfs.data.views import MultiCrop
from scfs.distributed import choose_device, is_rank_zero, process_group
from scfs.pretraining.prepare import PreparedRun, prepare
from scfs.pretraining.start import announce
from scfs.runs import layout
from scfs.training.cpu import cpu_setup, peak_memory
from scfs.visualize.pictures import save_views

TIMED_STEPS, NUM_IMAGES = 4, 6
MIN_STEPS = 3  # per epoch; with fewer, a run of the usual length has hardly any steps


def preview(config: Config, *, name: str, console: Console) -> Path:
    """Estimate the cost of a run from a few timed steps, which are discarded, and draw example views: `--dry-run`.

    Returns the path of the picture, the only file written.
    """
    device = choose_device(config.run.device)
    with process_group(device), cpu_setup(device, config.run.threads):
        run = prepare(config, device, console)
        student = run.learner.method.student
        seconds = time_steps(run)
        facts = {
            "images": _counted(len(run.source), skipped_by_suffix(config.data.source)),
            "steps": f"{run.total_steps} ({run.steps_per_epoch} per epoch, {run.config.optim.epochs} epochs)",
            "parameters": f"{_millions(student)} in the student, {_millions(student.backbone)} of them in its backbone",
            "memory": f"about {peak_memory(device) / 2**30:.1f} GB per process, without data loader workers",
            "time per step": f"about {seconds:.2f} s, {run.config.optim.batch_size / seconds:.0f} images/s",
            "total time": f"about {_duration(seconds * run.total_steps)}, without evaluation",
        }
        announce(console, run.config, run.choices, {**layout.environment(device), **facts})
        if run.steps_per_epoch < MIN_STEPS:
            console.print(
                f"Warning: an epoch has only {run.steps_per_epoch} step(s) of {run.config.optim.batch_size} images; "
                "lower optim.batch_size, or raise optim.epochs.",
                style="yellow",
                soft_wrap=True,
                highlight=False,
            )
        picture = layout.free_path(f"{name}-views", ".png")
        if is_rank_zero():
            images = [readable_image(run.source, i)[0] for i in range(min(NUM_IMAGES, len(run.source)))]
            multi_crop = MultiCrop(**run.config.crops | {"colours": "loader"})
            save_views(picture, images, [multi_crop(image, run.config.seed + i) for i, image in enumerate(images)])
        console.print(f"example views: {picture}", highlight=False, soft_wrap=True)
        console.print("Nothing was trained or saved; omit --dry-run to start.", highlight=False)
    return picture


def time_steps(run: PreparedRun) -> float:
    """Seconds per step, including data loading; the first step is a warm-up and not counted."""
    marks = [time.perf_counter()]
    for step, batch in zip(range(min(1 + TIMED_STEPS, run.total_steps)), run.batches(0), strict=False):
        run.learner.step(batch, step)
        marks.append(time.perf_counter())
    return (marks[-1] - marks[1]) / (len(marks) - 2) if len(marks) > 2 else marks[1] - marks[0]


def _counted(used: int, skipped: Counter[str]) -> str:
    if not skipped:
        return f"{used}"
    listed = ", ".join(f"{count} {suffix}" for suffix, count in skipped.most_common())
    return f"{used} used, {skipped.total()} files skipped because of their suffix ({listed})"


def _millions(module: nn.Module) -> str:
    return f"{sum(p.numel() for p in module.parameters()) / 1e6:.1f} M"


def _duration(seconds: float) -> str:
    minutes = max(1, round(seconds / 60))
    return f"{minutes // 60} h {minutes % 60:02d} min" if minutes >= 60 else f"{minutes} min"
