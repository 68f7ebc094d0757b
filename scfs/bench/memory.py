import multiprocessing
import resource
import sys

import torch
from rich.console import Console

from scfs.bench.ours import OurStep, random_batch
from scfs.bench.page import show
from scfs.config import BenchMemory
from scfs.data.loader import num_cores
from scfs.engine.memory import keep_freed_memory

STEPS = (("dino", False), ("scfs", False), ("scfs", True))  # mode, and whether activations are recomputed
UNIT = 1 if sys.platform == "darwin" else 1024  # of what the system reports, in bytes


def bench_memory(settings: BenchMemory, console: Console) -> dict[tuple[int, bool, str], float]:
    """The peak memory of steps, each in a process of its own: the `scfs bench memory` command.

    Returns GB by batch size, whether activations are recomputed, and mode.
    """
    peaks: dict[tuple[int, bool, str], float] = {}
    rows = []
    for batch_size in settings.batch_sizes:
        for contrast, recompute in STEPS:
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                peak = pool.apply(peak_gigabytes, (settings.backbone, batch_size, recompute, contrast))
            peaks[batch_size, recompute, contrast] = peak
            rows.append(
                {
                    "step": contrast + (", gradient checkpointing" if recompute else ""),
                    "batch": str(batch_size),
                    "peak GB": f"{peak:.2f}",
                    "of dino": f"{peak / peaks[batch_size, False, 'dino']:.2f}",
                    "images a GB": f"{batch_size / peak:.1f}",
                }
            )
    show(console, f"{settings.backbone}, 2 x 224 + 8 x 96 px, float32, whole process", rows, write=settings.write)
    return peaks


def peak_gigabytes(backbone: str, batch_size: int, recompute: bool, contrast: str) -> float:
    """Of this process after a step, once the optimizer has its state."""
    torch.set_num_threads(num_cores())
    keep_freed_memory()
    step = OurStep(random_batch(batch_size), contrast=contrast, variant="paper", backbone=backbone, recompute=recompute)
    whole, step.batch = step.batch, random_batch(1)
    step(0)
    step.batch = whole
    step(1)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * UNIT / 1e9
