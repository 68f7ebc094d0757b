from collections.abc import Callable

import torch
from rich.console import Console

from scfs.bench.bare import BareProducts, MatrixProduct
from scfs.bench.ours import CPU, OurStep, random_batch
from scfs.bench.page import Row, check_page, show
from scfs.bench.peers import LightlyDino
from scfs.bench.settings import BenchStep
from scfs.bench.timing import interleaved
from scfs.data.views import normalize_views
from scfs.training.cpu import cpu_setup

MODES = {"dino": ("dino", "paper"), "scfs": ("scfs", "paper"), "scfs, released": ("scfs", "released")}
PRODUCT, FLOOR, PEER = "matrix product", "bare convolutions", "lightly's DINO"


def bench_step(settings: BenchStep, console: Console) -> dict[str, float]:
    """Time a training step of each mode beside its peers, in one process: the `scfs bench step` command.

    Returns the median seconds of each.
    """
    check_page(settings.write)
    with cpu_setup(CPU, keep_memory=settings.keep_memory):  # as in `scfs pretrain`; the peer benefits too
        return _bench_step(settings, console)


def _bench_step(settings: BenchStep, console: Console) -> dict[str, float]:
    sizes = settings.model_dump(include={"global_size", "local_size", "num_local_views"})
    batch = random_batch(settings.batch_size, **sizes)
    steps = {
        name: OurStep(batch, contrast=contrast, variant=variant, backbone=settings.backbone, out_dim=settings.out_dim)
        for name, (contrast, variant) in MODES.items()
    }
    floor, product = BareProducts(lambda: steps["dino"](0), *steps["dino"].backbones()), MatrixProduct()
    jobs: dict[str, Callable[[int], object]] = {PRODUCT: lambda _: product(), FLOOR: lambda _: floor(), **steps}
    if settings.peers:
        floats = normalize_views(batch)
        peer = LightlyDino(settings.backbone, out_dim=settings.out_dim)
        jobs[PEER] = lambda _: peer(floats)
    seconds = interleaved(jobs, settings.rounds, warm_up=settings.warm_up)
    rate = MatrixProduct.flops / seconds.pop(PRODUCT) / 1e9
    show(console, _title(settings, rate), _rows(seconds), write=settings.write)
    return seconds


def _rows(seconds: dict[str, float]) -> list[Row]:
    """Every time, and its ratio to each of those it is compared with."""
    against = [name for name in (PEER, FLOOR, "dino") if name in seconds]
    return [
        {"step": name, "seconds": f"{time:.2f}", **{f"vs {base}": f"{time / seconds[base]:.2f}" for base in against}}
        for name, time in seconds.items()
    ]


def _title(settings: BenchStep, rate: float) -> str:
    views = f"2 x {settings.global_size} + {settings.num_local_views} x {settings.local_size} px"
    memory = "" if settings.keep_memory else ", freed memory returned to the system"
    return (
        f"{settings.backbone}, batch {settings.batch_size}, {views}, float32, {torch.get_num_threads()} threads, "
        f"matrix product {rate:.0f} GFLOP/s{memory}"
    )
