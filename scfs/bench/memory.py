import multiprocessing
import resource
import statistics
import time
from typing import NamedTuple

from rich.console import Console

from scfs.bench.ours import CPU, OurStep, random_batch
from scfs.bench.page import Row, check_page, show
from scfs.bench.settings import BenchMemory
from scfs.training.cpu import cpu_setup, peak_memory

RELEASED = "scfs, released"
# Mode, variant, and whether activations are recomputed.
STEPS = {
    "dino": ("dino", "paper", False),
    "scfs": ("scfs", "paper", False),
    RELEASED: ("scfs", "released", False),
    "scfs, gradient checkpointing": ("scfs", "paper", True),
}


class Cost(NamedTuple):
    """The cost of steps in their own process."""

    gigabytes: float  # at the peak
    seconds: float  # of a step; 0 if none was timed
    page_faults: float  # of a step


def bench_memory(settings: BenchMemory, console: Console) -> dict[tuple[int, str], Cost]:
    """Measure memory and time of steps as `scfs pretrain` takes them, each in its own process.

    The `scfs bench memory` command. Returns costs by batch size and step.
    """
    check_page(settings.write)
    costs: dict[tuple[int, str], Cost] = {}
    rows = []
    for batch_size in settings.batch_sizes:
        for name, mode in STEPS.items():
            if name == RELEASED and not settings.released:
                continue
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                cost = pool.apply(step_cost, (settings.backbone, batch_size, settings.rounds, *mode))
            costs[batch_size, name] = cost
            rows.append(
                {"step": name, "batch": str(batch_size), **_columns(cost, costs[batch_size, "dino"], batch_size)}
            )
    title = f"{settings.backbone}, 2 x 224 + 8 x 96 px, float32, each in its own process"
    show(console, title, rows, write=settings.write)
    return costs


def _columns(cost: Cost, dino: Cost, batch_size: int) -> Row:
    memory = {
        "peak GB": f"{cost.gigabytes:.2f}",
        "memory vs dino": f"{cost.gigabytes / dino.gigabytes:.2f}",
        "images per GB": f"{batch_size / cost.gigabytes:.1f}",
    }
    if not cost.seconds:
        return memory
    times = {"seconds": f"{cost.seconds:.2f}", "time vs dino": f"{cost.seconds / dino.seconds:.2f}"}
    return memory | times | {"page faults": f"{cost.page_faults:,.0f}"}


@cpu_setup(CPU)
def step_cost(backbone: str, batch_size: int, rounds: int, contrast: str, variant: str, recompute: bool) -> Cost:
    """The cost in this process: peak memory once the optimizer has its state, then the time of further steps."""
    step = OurStep(random_batch(batch_size), contrast=contrast, variant=variant, backbone=backbone, recompute=recompute)
    whole, step.batch = step.batch, random_batch(1)
    step(0)
    step.batch = whole
    step(1)
    peak = peak_memory(CPU) / 1e9
    if not rounds:
        return Cost(peak, 0.0, 0.0)
    step(2)
    faults, seconds = resource.getrusage(resource.RUSAGE_SELF).ru_minflt, []
    for turn in range(rounds):
        start = time.perf_counter()
        step(3 + turn)
        seconds.append(time.perf_counter() - start)
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults
    return Cost(peak, statistics.median(seconds), faults / rounds)
