import resource
import time
from pathlib import Path

import torch
from rich.console import Console
from torch import nn

from scfs.config import Config
from scfs.data.loader import readable_image
from scfs.data.views import MultiCrop
from scfs.distributed import choose_device, is_rank_zero, process_group
from scfs.pretrain.loop import Job, make_batches, prepare
from scfs.pretrain.start import announce
from scfs.pretrain.step import schedule_at, train_step
from scfs.runs import layout
from scfs.visualize.pictures import save_views

TIMED_STEPS, NUM_IMAGES = 4, 6


def preview(config: Config, *, name: str, console: Console) -> Path:
    """What a run would be and cost, with example views, from a few timed steps that are thrown away: `--dry-run`.

    Returns the picture of the views, the only thing that is written.
    """
    device = choose_device(config.run.device)
    with process_group(device):
        job = prepare(config, device, console)
        student = job.learner.method.student
        seconds = time_steps(job)
        facts = {
            "images": len(job.source),
            "steps": f"{job.total_steps} ({job.steps_per_epoch} an epoch, {job.config.optim.epochs} epochs)",
            "parameters": f"{_millions(student)} in the student, {_millions(student.backbone)} of them in its backbone",
            "memory": f"about {peak_memory(device) / 2**30:.1f} GB a process, without loader processes",
            "a step": f"about {seconds:.2f} s, {job.config.optim.batch_size / seconds:.0f} images/s",
            "the run": f"about {_duration(seconds * job.total_steps)}, without scores",
        }
        announce(console, job.config, job.choices, {**layout.environment(device), **facts})
        picture = layout.free_path(f"{name}-views", ".png")
        if is_rank_zero():
            images = [readable_image(job.source, i)[0] for i in range(min(NUM_IMAGES, len(job.source)))]
            save_views(picture, images, MultiCrop(**job.config.crops | {"colours": "loader"}), job.config.seed)
        console.print(f"example views: {picture}", highlight=False, soft_wrap=True)
        console.print("Nothing was trained or kept; omit --dry-run to start.", highlight=False)
    return picture


def time_steps(job: Job) -> float:
    """Seconds of a step, data included; the first one, which warms up, does not count."""
    optim, marks = job.config.optim, [time.perf_counter()]
    for step, parts in zip(range(min(1 + TIMED_STEPS, job.total_steps)), make_batches(job, 0), strict=False):
        schedule = schedule_at(job.config, step, job.steps_per_epoch)
        views = [part.views for part in parts]
        train_step(job.learner, views, schedule, clip=optim.clip, clip_norm=optim.clip_norm)
        marks.append(time.perf_counter())
    return (marks[-1] - marks[1]) / (len(marks) - 2) if len(marks) > 2 else marks[1] - marks[0]


def peak_memory(device: torch.device) -> int:
    """The most bytes that this process has used so far, on its device."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _millions(module: nn.Module) -> str:
    return f"{sum(p.numel() for p in module.parameters()) / 1e6:.1f} M"


def _duration(seconds: float) -> str:
    minutes = max(1, round(seconds / 60))
    return f"{minutes // 60} h {minutes % 60:02d} min" if minutes >= 60 else f"{minutes} min"
