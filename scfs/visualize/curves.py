from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from scfs.runs.files import write_figure
from scfs.runs.metrics_log import logged_metrics
from scfs.visualize.pictures import COLOURS

Line = list[tuple[float, float]]  # (step, value)

# The diagnostics to draw, by their names in the log; `teacher_entropy` is from older runs.
DIAGNOSTICS = {
    "entropy/view": "teacher entropy",
    "teacher_entropy": "teacher entropy (older version)",
    "spread/view": "spread of the head's outputs",
    "feature_spread": "spread of features",
}


def metric_lines(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Line]]:
    """Lines by panel and name from the rows of a run's log: losses, diagnostics, and a panel per unit of metrics.

    Panels without a line are left out.
    """
    panels: dict[str, dict[str, Line]] = {"losses": {}, "diagnostics": {}}
    for row in rows:
        for name, value in row.items():
            if name.startswith("loss/") or (name == "loss" and not any(other.startswith("loss/") for other in row)):
                panels["losses"].setdefault(name.removeprefix("loss/"), []).append((row["step"], value))
            elif name in DIAGNOSTICS:
                panels["diagnostics"].setdefault(DIAGNOSTICS[name], []).append((row["step"], value))
    for name, points in logged_metrics(rows).items():
        unit = points[0][1].unit
        title = f"metrics in {unit}" if unit else "other metrics"
        panels.setdefault(title, {})[name] = [(step, metric.scale * metric.value) for step, metric in points]
    return {title: lines for title, lines in panels.items() if lines}


def save_curves(path: Path, rows: Sequence[Mapping[str, Any]]) -> bool:
    """Losses, diagnostics and scores over the steps of a run; False, and no file, if nothing was logged."""
    panels = metric_lines(rows)
    if not panels:
        return False
    figure = Figure(figsize=(4.2 * len(panels), 3.2), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, (title, lines) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True):
        for number, (name, points) in enumerate(lines.items()):
            style = {"color": COLOURS[number % len(COLOURS)], "linestyle": ("-", "--")[number // len(COLOURS) % 2]}
            axes.plot(*zip(*points, strict=True), label=name, marker="o" if len(points) < 20 else "", ms=3, **style)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("step")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8, framealpha=0.6)
    write_figure(path, figure, dpi=110)
    return True
