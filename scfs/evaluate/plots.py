import math
from collections.abc import Mapping
from pathlib import Path

from matplotlib.figure import Figure

from scfs.runs.files import write_figure
from scfs.runs.metric import Metric


def save_bars(path: Path, metrics: Mapping[str, Metric], *, label: str) -> None:
    """A bar per metric, with its interval."""
    figure = Figure(figsize=(1.5 + len(metrics), 3.5), layout="constrained")
    axes = figure.subplots()
    heights = [metric.scale * metric.value for metric in metrics.values()]
    axes.bar(list(metrics), heights, yerr=error_bars(list(metrics.values())), capsize=4, color="tab:blue")
    axes.set_ylabel(f"{label} {next(iter(metrics.values())).unit}".strip())
    write_figure(path, figure, dpi=120)


def error_bars(metrics: list[Metric]) -> list[list[float]]:
    """How far the intervals extend below and above the values, as matplotlib expects them; NaN where unknown."""
    unknown = (math.nan, math.nan)
    extents = [
        (metric.scale * (metric.value - low), metric.scale * (high - metric.value))
        for metric in metrics
        for low, high in [metric.interval or unknown]
    ]
    return [[below for below, _ in extents], [above for _, above in extents]]
