from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from scfs.engine import runfolder
from scfs.errors import UserError
from scfs.evaluate.results import read_results

Column = tuple[str, str, str]  # evaluation, protocol, figure
LIKE_THE_BEST = "~"


class Cell(NamedTuple):
    """A figure of a run, and where it would lie in 95 % of test sets."""

    top1: float
    low: float
    high: float

    def is_like(self, best: "Cell") -> bool:
        """Whether the difference to the best is smaller than either's interval."""
        return self != best and (best.low <= self.top1 or self.high >= best.top1)


def compare(runs: Sequence[str], console: Console) -> Path:
    """Lay runs side by side by what they scored, print it and write it down: the `scfs compare` command.

    Returns the Markdown file; the plot is beside it.
    """
    cells = {run: latest(Path(run)) for run in runs}
    columns = sorted({column for row in cells.values() for column in row})
    best = {c: max((row[c] for row in cells.values() if c in row), key=lambda cell: cell.top1) for c in columns}
    lines = [
        [run, *(_shown(row[column], best[column]) if column in row else "" for column in columns)]
        for run, row in cells.items()
    ]
    head = ["run", *(f"{figure} ({evaluation}, {protocol})" for evaluation, protocol, figure in columns)]
    table = Table(*head)
    for line in lines:
        table.add_row(*line)
    console.print(table)
    note = f"Top-1 in per cent. {LIKE_THE_BEST}: not told apart from the best of its column at 95 %."
    console.print(note, highlight=False)
    page = runfolder.free_path("compare", ".md")
    page.parent.mkdir(parents=True, exist_ok=True)
    rows = "\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *lines])
    plot = page.with_suffix(".png")
    page.write_text(f"# Runs compared\n\n{rows}\n\n{note}\n\n![Top-1 by evaluation]({plot.name})\n", encoding="utf-8")
    _save_plot(plot, cells, columns, head[1:])
    console.print(f"table  {page}\nplot   {plot}", highlight=False, soft_wrap=True)
    return page


def latest(run: Path) -> dict[Column, Cell]:
    """The last figure of each kind that a run has."""
    if not (run / runfolder.SETTINGS).exists():
        raise UserError(f"{run} is not a run folder; give folders that scfs pretrain made.")
    if not (entries := read_results(run)):
        raise UserError(f"{run} has no results yet; score it first, such as with: scfs knn {run} --data FOLDER.")
    return {
        (entry["evaluation"], _protocol(entry["settings"]), name): Cell(figure["top1"], *figure["interval"])
        for entry in entries
        for name, figure in entry["figures"].items()
    }


def _protocol(settings: dict[str, Any]) -> str:
    """What must be the same for figures to be compared: the data, the size, the length of training and the network."""
    parts = [Path(settings["data"]).name]
    if settings.get("classes"):
        parts.append(Path(settings["classes"]).stem)
    if "size" in settings:
        parts.append(f"{settings['size']} px")
    if settings.get("steps"):
        parts.append(f"{settings['steps']} steps")
    elif "epochs" in settings:
        parts.append(f"{settings['epochs']} epochs")
    if settings.get("network") == "student":
        parts.append("student")
    return ", ".join(parts)


def _shown(cell: Cell, best: Cell) -> str:
    return f"{100 * cell.top1:.1f}{' ' + LIKE_THE_BEST if cell.is_like(best) else ''}"


def _save_plot(
    path: Path, cells: dict[str, dict[Column, Cell]], columns: Sequence[Column], names: Sequence[str]
) -> None:
    """Groups of bars: a group per evaluation, a bar per run."""
    figure = Figure(figsize=(3 + 0.4 * len(columns) * (1 + len(cells)), 4), layout="constrained")
    axes, width = figure.subplots(), 0.8 / len(cells)
    for i, (run, row) in enumerate(cells.items()):
        there = [j for j, column in enumerate(columns) if column in row]
        shown = [row[columns[j]] for j in there]
        errors = [[100 * (c.top1 - c.low) for c in shown], [100 * (c.high - c.top1) for c in shown]]
        places = [j + width * (i - (len(cells) - 1) / 2) for j in there]
        axes.bar(places, [100 * c.top1 for c in shown], width, yerr=errors, capsize=3, label=Path(run).name)
    axes.set_xticks(range(len(columns)), names, rotation=20, ha="right")
    axes.set_ylabel("top-1 %")
    axes.legend()
    figure.savefig(path, dpi=120)
