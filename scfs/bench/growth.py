from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from rich.console import Console

from scfs.bench.ours import CPU, OurStep, random_batch
from scfs.bench.page import Row, check_page, show
from scfs.bench.settings import BenchGrowth
from scfs.bench.timing import interleaved
from scfs.training.cpu import cpu_setup

MODES = ("dino", "scfs")
BASE: dict[str, Any] = {"num_images": 4, "global_size": 160, "local_size": 64, "num_local_views": 8}
# One quantity at a time, around the base.
SWEEPS: dict[str, list[dict[str, Any]]] = {
    "local views": [{"num_local_views": n} for n in (2, 4, 8, 12)],
    "images per batch": [{"num_images": n} for n in (2, 4, 8)],
    "pixels of global views": [
        {"global_size": large, "local_size": small} for large, small in ((96, 40), (160, 64), (224, 96))
    ],
}
PLOT = "growth.png"


@cpu_setup(CPU)
def bench_growth(settings: BenchGrowth, console: Console) -> None:
    """Measure how a step grows with views, batch and resolution: the `scfs bench growth` command."""
    check_page(settings.write)
    rows: list[Row] = []
    figure = Figure(figsize=(9, 3), layout="constrained")
    for name, axes in zip(SWEEPS, figure.subplots(1, len(SWEEPS)), strict=True):
        values = [next(iter(change.values())) for change in SWEEPS[name]]
        seconds = _step_seconds([{**BASE, **change} for change in SWEEPS[name]], settings)
        base = seconds[values.index(BASE[next(iter(SWEEPS[name][0]))])]
        for value, both in zip(values, seconds, strict=True):
            ratios = {mode: f"{both[mode] / base['dino']:.2f}" for mode in MODES}
            rows.append(
                {"varied": name, "to": str(value), **ratios, "scfs vs dino": f"{both['scfs'] / both['dino']:.2f}"}
            )
        for mode in MODES:
            axes.plot(values, [both[mode] / base["dino"] for both in seconds], marker="o", label=mode)
        axes.set(xlabel=name, ylim=(0, None))
    figure.axes[0].set_ylabel("step time, relative to dino at the base")
    figure.axes[0].legend()
    show(console, _title(settings), rows, write=settings.write, picture=PLOT)
    if settings.write:
        figure.savefig(Path(settings.write).with_name(PLOT), dpi=100)


def _step_seconds(shapes: list[dict[str, Any]], settings: BenchGrowth) -> list[dict[str, float]]:
    """Seconds of each mode at each shape of the batch; all take turns."""
    heads: dict[str, Any] = {"variant": "paper", "backbone": settings.backbone, "out_dim": 4096}
    steps = {
        f"{i} {mode}": OurStep(random_batch(**shape), contrast=mode, **heads)
        for i, shape in enumerate(shapes)
        for mode in MODES
    }
    seconds = interleaved(steps, settings.rounds, warm_up=1)
    return [{mode: seconds[f"{i} {mode}"] for mode in MODES} for i in range(len(shapes))]


def _title(settings: BenchGrowth) -> str:
    views = f"2 x {BASE['global_size']} + {BASE['num_local_views']} x {BASE['local_size']} px"
    return f"{settings.backbone} around batch {BASE['num_images']}, {views}, relative to that dino step"
