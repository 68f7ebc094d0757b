"""Draws views, images and feature augmentations with their class probabilities, as the paper's Fig. 1."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from numpy.typing import NDArray
from PIL import Image

from scfs.visualize.grid import save_figure, shortened
from scfs.visualize.pictures import overlay

DPI, FONT, SMALL = 200, 8, 6.5
IMAGE, BARS, GAP, ROW_GAP, TOP, BOTTOM = 1.15, 1.15, 0.1, 0.22, 0.3, 0.44  # inches
EXPECTED, TAKEN_FOR, OTHER = "#0072B2", "#D55E00", "#BBBBBB"  # of bars: the reference, the view's top class, others
TITLES = ("over-augmented view", "original image", "feature augmentation")
NUM_BARS, NAME_LENGTH = 5, 21


class ComparedRow(NamedTuple):
    """An image, one of its views, and the top classes of view, image and feature augmentation, highest first."""

    image: Image.Image
    view: NDArray[np.uint8]  # (h, w, 3)
    box: Sequence[float]  # x0 y0 x1 y1 of the view in the image, from 0 to 1
    attention: NDArray[np.float32]  # (H, W)
    top: Sequence[Sequence[tuple[str, float]]]  # names and probabilities
    reference: str  # the true class, or the original's top class


def save_comparison(path: Path, rows: Sequence[ComparedRow], *, reference: str) -> None:
    """Each row: a view, the image it was cut from and its attention on the image, each with its top classes.

    reference: what the blue class is, for the legend.
    """
    width, height = _extent(len(rows))
    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    for number, row in enumerate(rows):
        cells = [_cell(figure, number, column, len(rows)) for column in range(6)]
        _draw_samples(cells[::2], row)
        for cell, top in zip(cells[1::2], row.top, strict=True):
            _draw_bars(cell, top, {row.top[0][0][0]: TAKEN_FOR, row.reference: EXPECTED})
        if number == 0:
            _add_titles(figure, cells)
    colours = {reference: EXPECTED, "top class of the view, if another": TAKEN_FOR, "other classes": OTHER}
    patches = [Patch(color=colour, label=name) for name, colour in colours.items()]
    figure.legend(handles=patches, loc="lower center", ncols=3, fontsize=FONT, frameon=False, handlelength=1)
    save_figure(figure, path, dpi=DPI)


def _extent(num_rows: int) -> tuple[float, float]:
    """Width and height of the picture in inches."""
    return 3 * (IMAGE + BARS + 2 * GAP) + GAP, TOP + num_rows * IMAGE + (num_rows - 1) * ROW_GAP + BOTTOM


def _cell(figure: Figure, row: int, column: int, num_rows: int) -> Any:
    """An empty cell; even columns are for images, odd ones for bars."""
    width, height = _extent(num_rows)
    left = GAP + column // 2 * (IMAGE + BARS + 2 * GAP) + column % 2 * (IMAGE + GAP)
    bottom = height - TOP - IMAGE - row * (IMAGE + ROW_GAP)
    cell = figure.add_axes((left / width, bottom / height, (BARS if column % 2 else IMAGE) / width, IMAGE / height))
    cell.set_xticks([])
    cell.set_yticks([])
    return cell


def _draw_samples(cells: Sequence[Any], row: ComparedRow) -> None:
    size = row.image.size
    x0, y0, x1, y1 = (edge * extent for edge, extent in zip(row.box, 2 * size, strict=True))
    cells[0].imshow(row.view)
    cells[1].imshow(row.image)
    overlay(cells[2], row.image, row.attention)
    for cell in cells[1:]:
        for colour, line in (("white", 2.2), (TAKEN_FOR, 1.3)):
            cell.add_patch(Rectangle((x0, y0), x1 - x0, y1 - y0, fill=False, ec=colour, lw=line))
    for cell, colour, line in zip(cells, (TAKEN_FOR, "black", "black"), (1.6, 0.6, 0.6), strict=True):
        for spine in cell.spines.values():
            spine.set(edgecolor=colour, linewidth=line)
    cosines = f"cosines {row.attention.min():.2f} to {row.attention.max():.2f}"
    cells[2].set_xlabel(cosines, fontsize=SMALL, labelpad=1.5)


def _draw_bars(cell: Any, top: Sequence[tuple[str, float]], colours: dict[str, str]) -> None:
    """A bar per class, its name above it and its probability at the right."""
    cell.set(xlim=(0, 1), ylim=(NUM_BARS, 0))
    for spine in cell.spines.values():
        spine.set_visible(False)
    for number, (name, probability) in enumerate(top[:NUM_BARS]):
        colour = colours.get(name, OTHER)
        cell.barh(number + 0.8, 1, height=0.2, color="#EEEEEE")
        cell.barh(number + 0.8, probability, height=0.2, color=colour)
        style = {"fontsize": SMALL, "va": "bottom", "parse_math": False}
        colour = "black" if colour == OTHER else colour
        cell.text(0, number + 0.66, shortened(name, NAME_LENGTH), ha="left", color=colour, **style)
        cell.text(1, number + 0.66, f"{probability:.2f}", ha="right", color=colour, **style)


def _add_titles(figure: Figure, cells: Sequence[Any]) -> None:
    """A title above each pair of cells."""
    for cell, title in zip(cells[::2], TITLES, strict=True):
        place = cell.get_position()
        figure.text(place.x0, place.y1 + 0.07 / figure.get_figheight(), title, fontsize=FONT, ha="left", va="bottom")
