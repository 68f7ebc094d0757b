import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from scfs.ablate.rows import PAPER, TableRow
from scfs.ablate.settings import Ablate
from scfs.markdown import markdown_table
from scfs.runs.files import write_figure, write_text
from scfs.runs.metric import Metric

PAPER_COLUMNS = ("k-NN", "linear")  # of TableRow.paper


class Measured(NamedTuple):
    """The scores of one run of a row, by column, and its cost."""

    metrics: Mapping[str, Metric]
    images_per_second: float
    hours: float


def write_table(
    folder: Path,
    name: str,
    rows: Sequence[TableRow],
    measured: Mapping[str, Sequence[Measured]],
    settings: Ablate,
    console: Console,
) -> Path:
    """Print the table, and write it and its plot to the folder, overwriting earlier ones."""
    columns = _columns(measured)
    head = ["row", *(cell for column, unit in columns.items() for cell in (f"{column} {unit}".strip(), "paper"))]
    head += ["images/s", "hours per run"]
    lines = [_line(row, measured[row.name], columns) for row in rows]
    table = Table(*head)
    for line in lines:
        table.add_row(*line)
    console.print(table)
    hours = sum(run.hours for runs in measured.values() for run in runs)
    probe = {"live": "", "cached": ", linear on cached features (the quick variant)", "off": ", no linear probe"}
    seeds = f"Mean (lowest-highest) over {len(settings.seeds)} seeds" if len(settings.seeds) > 1 else "One seed"
    note = f"{seeds}{probe[settings.linear]}. Training took {hours:.1f} hours in all. {PAPER}"
    objectives = sorted({row.config.method.objective for row in rows})
    if objectives != ["dino"]:
        note += f" The paper's objective is dino; these rows use {' and '.join(objectives)}."
    console.print(note)
    page, plot = folder / "table.md", folder / "table.png"
    _plot(plot, rows, measured)
    write_text(page, f"# Ablation: {name}\n\n{markdown_table(head, lines)}\n\n{note}\n\n![{name}]({plot.name})\n")
    console.print(f"table  {page}\nplot   {plot}")
    return page


def _columns(measured: Mapping[str, Sequence[Measured]]) -> dict[str, str]:
    """The scores of the runs, in order, with their units."""
    return {name: m.unit for runs in measured.values() for run in runs for name, m in run.metrics.items()}


def _line(row: TableRow, runs: Sequence[Measured], columns: Mapping[str, str]) -> list[str]:
    paper = {} if row.paper is None else dict(zip(PAPER_COLUMNS, row.paper, strict=True))
    cells = []
    for name in columns:
        cells.append(_mean_and_range([run.metrics[name] for run in runs if name in run.metrics]))
        cells.append(f"{paper[name]:.1f}" if name in paper else "")
    speed = statistics.mean(run.images_per_second for run in runs)
    hours = statistics.mean(run.hours for run in runs)
    return [row.name, *cells, f"{speed:.0f}", f"{hours:.2f}"]


def _mean_and_range(metrics: Sequence[Metric]) -> str:
    values = [metric.scale * metric.value for metric in metrics]
    if not values:
        return ""
    mean = f"{statistics.mean(values):.1f}"
    return mean if len(values) == 1 else f"{mean} ({min(values):.1f}-{max(values):.1f})"


def _plot(path: Path, rows: Sequence[TableRow], measured: Mapping[str, Sequence[Measured]]) -> None:
    """Lines if rows are points of a series, otherwise bars; a panel per score."""
    columns = _columns(measured)
    figure = Figure(figsize=(5 * len(columns), 4), layout="constrained")
    for axes, (name, unit) in zip(figure.subplots(1, len(columns), squeeze=False)[0], columns.items(), strict=True):
        values = {
            row.name: [m.scale * m.value for run in measured[row.name] if (m := run.metrics.get(name))] for row in rows
        }
        (_lines if rows[0].series else _bars)(axes, rows, values)
        axes.set_ylabel(f"{name} {unit}".strip())
    write_figure(path, figure, dpi=120)


def _bars(axes: Axes, rows: Sequence[TableRow], values: Mapping[str, Sequence[float]]) -> None:
    means, errors = _means([values[row.name] for row in rows])
    axes.bar([row.name for row in rows], means, yerr=errors, capsize=4)
    axes.tick_params(axis="x", rotation=30)


def _lines(axes: Axes, rows: Sequence[TableRow], values: Mapping[str, Sequence[float]]) -> None:
    for series in dict.fromkeys(row.series for row in rows):
        points = [row for row in rows if row.series == series]
        means, errors = _means([values[row.name] for row in points])
        axes.errorbar([row.x for row in points], means, yerr=errors, marker="o", capsize=4, label=series)
    axes.set_xticks(sorted({row.x for row in rows}))
    axes.set_xlabel("local views")
    axes.legend()


def _means(values: Sequence[Sequence[float]]) -> tuple[list[float], list[list[float]]]:
    """Means, and how far the values extend below and above them."""
    means = [statistics.mean(each) for each in values]
    below = [mean - min(each) for mean, each in zip(means, values, strict=True)]
    above = [max(each) - mean for mean, each in zip(means, values, strict=True)]
    return means, [below, above]
