"""Grids of images, in which pictures are drawn."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from scfs.runs.files import write_figure

CELL, TITLE = 1.3, 9  # inches of an image in a grid; points of a title


def grid(rows: int, columns: int, *, titles: bool = False, top: float = 0.3, right: float = 0.1) -> tuple[Figure, Any]:
    """Square cells without ticks, with space for titles above the first row or above all.

    top, right: margins, in inches.
    """
    gap = 0.3 if titles else 0.1  # inches between rows
    width, height = CELL * columns + 0.1 * columns + right, CELL * rows + gap * (rows - 1) + top + 0.1
    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    # Placed by hand: a constrained layout of so many cells takes seconds.
    axes = figure.subplots(rows, columns, squeeze=False)
    figure.subplots_adjust(0.1 / width, 0.1 / height, 1 - right / width, 1 - top / height, 0.1 / CELL, gap / CELL)
    for axis in axes.flat:
        axis.set_xticks([])
        axis.set_yticks([])
    return figure, axes


def add_titles(cells: Any, names: Sequence[str]) -> None:
    """Write a name above each cell."""
    for cell, name in zip(cells, names, strict=True):
        cell.set_title(shortened(name, 18), fontsize=TITLE, pad=4)


def shortened(name: str, length: int) -> str:
    """A name of at most so many letters."""
    return name if len(name) <= length else f"{name[: length - 1]}\N{HORIZONTAL ELLIPSIS}"


def save_figure(figure: Figure, path: Path, *, fit: bool = False, dpi: int = 110) -> None:
    """Write a picture, and its folder if necessary; fit: with all that is drawn outside its frame."""
    write_figure(path, figure, dpi=dpi, bbox_inches="tight" if fit else None)
