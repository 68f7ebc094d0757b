import multiprocessing
import resource
import statistics
import time
from typing import Any, NamedTuple

from rich.console import Console

from scfs.bench.ours import CPU, OurStep, random_batch
from scfs.bench.page import Row, check_page, show
from scfs.bench.settings import BenchMemory
from scfs.training.cpu import cpu_setup, peak_memory

RELEASED = "scfs, released"
STEPS: dict[str, dict[str, Any]] = {
    "dino": {"contrast": "dino", "variant": "paper"},
    "scfs": {"contrast": "scfs", "variant": "paper"},
    RELEASED: {"contrast": "scfs", "variant": "released"},
    "scfs, gradient checkpointing": {"contrast": "scfs", "variant": "paper", "recompute": True},
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
    views = settings.model_dump(include={"num_local_views", "global_size", "local_size"})
    network = settings.model_dump(include={"backbone", "out_dim"})
    rows = []
    for batch_size in settings.batch_sizes:
        for name, step in STEPS.items():
            if name == RELEASED and not settings.released:
                continue
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                cost = pool.apply(step_cost, (batch_size, settings.rounds), {"views": views, **network, **step})
            costs[batch_size, name] = cost
            rows.append(
                {"step": name, "batch": str(batch_size), **_columns(cost, costs[batch_size, "dino"], batch_size)}
            )
    sizes = f"2 x {settings.global_size} + {settings.num_local_views} x {settings.local_size} px"
    title = f"{settings.backbone}, {sizes}, float32, each in its own process"
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
def step_cost(batch_size: int, rounds: int, *, views: dict[str, int], **options: Any) -> Cost:
    """The cost in this process: peak memory once the optimizer has its state, then the time of further steps.

    views: what `random_batch` takes. options: what `OurStep` takes.
    """
    step = OurStep(random_batch(batch_size, **views), **options)
    whole, step.batch = step.batch, random_batch(1, **views)
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
