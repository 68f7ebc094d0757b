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

HEAD = ("row", "k-NN %", "paper", "linear %", "paper", "images/s", "hours a run")


class Measured(NamedTuple):
    """What a run of a row scored and cost."""

    knn: float | None
    linear: float | None
    images_per_second: float
    hours: float


def write_table(
    folder: Path,
    what: str,
    rows: Sequence[TableRow],
    measured: Mapping[str, Sequence[Measured]],
    settings: Ablate,
    console: Console,
) -> Path:
    """Print the table and write it with its plot into the folder; each time anew, from what the runs say."""
    lines = [_line(row, measured[row.name]) for row in rows]
    table = Table(*HEAD)
    for line in lines:
        table.add_row(*line)
    console.print(table)
    hours = sum(run.hours for runs in measured.values() for run in runs)
    probe = {"live": "", "cached": ", linear on cached features (the quick variant)", "off": ", no linear probe"}
    note = (
        f"Mean, and lowest to highest, over {len(settings.seeds)} seeds{probe[settings.linear]}. "
        f"Training took {hours:.1f} hours in all. {PAPER}"
    )
    objectives = sorted({row.config.method.objective for row in rows})
    if objectives != ["dino"]:
        note += f" Its objective is dino; these rows have {' and '.join(objectives)}."
    console.print(note, highlight=False)
    page, plot = folder / "table.md", folder / "table.png"
    _plot(plot, rows, measured)
    page.write_text(
        f"# Ablation: {what}\n\n{markdown_table(HEAD, lines)}\n\n{note}\n\n![{what}]({plot.name})\n", encoding="utf-8"
    )
    console.print(f"table  {page}\nplot   {plot}", highlight=False, soft_wrap=True)
    return page


def _line(row: TableRow, runs: Sequence[Measured]) -> list[str]:
    paper = ["", ""] if row.paper is None else [f"{figure:.1f}" for figure in row.paper]
    scores = [_spread([run[i] for run in runs]) for i in (0, 1)]
    speed = statistics.mean(run.images_per_second for run in runs)
    hours = statistics.mean(run.hours for run in runs)
    return [row.name, scores[0], paper[0], scores[1], paper[1], f"{speed:.0f}", f"{hours:.2f}"]


def _spread(scores: Sequence[float | None]) -> str:
    there = [100 * score for score in scores if score is not None]
    if not there:
        return ""
    mean = f"{statistics.mean(there):.1f}"
    return mean if len(there) == 1 else f"{mean} ({min(there):.1f}-{max(there):.1f})"


def _plot(path: Path, rows: Sequence[TableRow], measured: Mapping[str, Sequence[Measured]]) -> None:
    """Lines where rows differ by a number, otherwise bars; a panel for each score."""
    scores = [(i, name) for i, name in ((0, "k-NN"), (1, "linear")) if measured[rows[0].name][0][i] is not None]
    figure = Figure(figsize=(5 * len(scores), 4), layout="constrained")
    for axes, (i, name) in zip(figure.subplots(1, len(scores), squeeze=False)[0], scores, strict=True):
        values = {row.name: [100 * (run[i] or 0.0) for run in measured[row.name]] for row in rows}
        (_lines if rows[0].series else _bars)(axes, rows, values)
        axes.set_ylabel(f"{name} top-1 %")
    figure.savefig(path, dpi=120)


def _bars(axes: Axes, rows: Sequence[TableRow], values: Mapping[str, Sequence[float]]) -> None:
    means, errors = _means([values[row.name] for row in rows])
    axes.bar([row.name for row in rows], means, yerr=errors, capsize=4)
    axes.tick_params(axis="x", rotation=30)


def _lines(axes: Axes, rows: Sequence[TableRow], values: Mapping[str, Sequence[float]]) -> None:
    for series in dict.fromkeys(row.series for row in rows):
        mine = [row for row in rows if row.series == series]
        means, errors = _means([values[row.name] for row in mine])
        axes.errorbar([row.at for row in mine], means, yerr=errors, marker="o", capsize=4, label=series)
    axes.set_xlabel("local views")
    axes.legend()


def _means(values: Sequence[Sequence[float]]) -> tuple[list[float], list[list[float]]]:
    """Means, and how far below and above them the values go."""
    means = [statistics.mean(each) for each in values]
    below = [mean - min(each) for mean, each in zip(means, values, strict=True)]
    above = [max(each) - mean for mean, each in zip(means, values, strict=True)]
    return means, [below, above]
