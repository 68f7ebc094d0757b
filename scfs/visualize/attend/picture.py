"""Draws attention and principal components: rows are images, columns are runs."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image

from scfs.visualize.grid import CELL, TITLE, add_titles, grid, save_figure, shortened
from scfs.visualize.pictures import frame, line, outline, overlay
from scfs.visualize.queries import Example

# Q queries, H W map height and width

OUTSIDE = 0.5  # per cent of the cosines beyond each end of the colour scale
TOP, RIGHT, BAR = 0.6, 0.75, 0.12  # inches: margins for titles and colour bars, and the width of a bar
MOSAIC = 192  # pixels a side of the picture of all queries
LETTERS = 14  # of a run's name, for each column below it


class Panel(NamedTuple):
    """What one run shows at one layer."""

    run: str
    layer: str
    maps: list[NDArray[np.float32]]  # of each example: (Q, H, W) attention, or (1, H, W, 3) colours
    scale: str = ""  # panels that name the same one share a colour scale


def save_attention_picture(
    path: Path, examples: Sequence[Example], panels: Sequence[Panel], names: Sequence[str]
) -> None:
    """Each row: an image with the boxes of its queries, the queries, the searched image if it is another one, and maps.

    names: of the maps of each panel.
    """
    other = any(example.searched is not example.image for example in examples)
    first = 3 if other else 2
    figure, axes = grid(len(examples), first + len(names) * len(panels), top=TOP, right=RIGHT)
    scales = colour_scales(panels)
    for row, (example, cells) in enumerate(zip(examples, axes, strict=True)):
        _draw_queries(cells, example)
        if other:
            cells[2].imshow(example.searched)
        for panel, group in zip(panels, _groups(cells[first:], len(names)), strict=True):
            for number, (cell, attention) in enumerate(zip(group, panel.maps[row], strict=True)):
                overlay(cell, example.searched, attention, scales[panel.scale])
                if number < len(example.boxes) and len(example.boxes) > 1:
                    frame(cell, *line(number))
    add_titles(axes[0], ["image", "queries", "searched"][:first] + [*names] * len(panels))
    for panel, group in zip(panels, _groups(axes[0][first:], len(names)), strict=True):
        _title_group(figure, group, panel.run, panel.layer)
    _draw_bars(figure, scales)
    save_figure(figure, path, dpi=200)


def save_component_picture(path: Path, examples: Sequence[Example], panels: Sequence[Panel]) -> None:
    """Each row: an image, and the principal components of its maps as colours, for each run and layer."""
    figure, axes = grid(len(examples), 1 + len(panels), top=TOP)
    for row, (example, cells) in enumerate(zip(examples, axes, strict=True)):
        cells[0].imshow(example.image)
        for cell, panel in zip(cells[1:], panels, strict=True):
            extent = (0, example.image.width, example.image.height, 0)
            cell.imshow(panel.maps[row][0], extent=extent, interpolation="bicubic")
    add_titles(axes[0], ["image", *(panel.layer for panel in panels)])
    for panel, cell in zip(panels, axes[0][1:], strict=True):
        _title_group(figure, [cell], panel.run)
    save_figure(figure, path, dpi=200)


def colour_scales(panels: Sequence[Panel]) -> dict[str, Normalize]:
    """The range of the cosines of the panels that share a scale, over all images, without a few extreme ones."""
    scales = {}
    for name in dict.fromkeys(panel.scale for panel in panels):
        values = np.concatenate([each.ravel() for panel in panels if panel.scale == name for each in panel.maps])
        low, high = np.percentile(values, [OUTSIDE, 100 - OUTSIDE])
        scales[name] = Normalize(float(low), float(max(high, low + 1e-6)), clip=True)
    return scales


def _draw_queries(cells: Any, example: Example) -> None:
    """An image with boxes, and its queries: the only one, or all of them in a square."""
    cells[0].imshow(example.image)
    for number, box in enumerate(example.boxes):
        outline(cells[0], box, number)
    columns = int(np.ceil(np.sqrt(len(example.boxes))))
    side = MOSAIC // columns
    mosaic = Image.new("RGB", (side * columns, side * columns), "white")
    for number, query in enumerate(example.queries):
        corner = side * (number % columns), side * (number // columns)
        mosaic.paste(query.resize((side, side), Image.Resampling.BICUBIC), corner)
    cells[1].imshow(mosaic)
    for number in range(len(example.boxes)):
        left, top = side * (number % columns), side * (number // columns)
        outline(cells[1], (left + 2, top + 2, left + side - 2, top + side - 2), number)


def _groups(cells: Any, size: int) -> Iterator[Any]:
    for start in range(0, len(cells), size):
        yield cells[start : start + size]


def _title_group(figure: Figure, cells: Sequence[Any], *parts: str) -> None:
    """A title over several cells of the first row: its parts in one line or, if that is too short, one per line."""
    left, right = cells[0].get_position(), cells[-1].get_position()
    height = left.y1 + 0.26 / figure.get_figheight()
    letters, text = LETTERS * len(cells), ", ".join(parts)
    if len(text) > letters:
        text = "\n".join(shortened(part, letters) for part in parts)
    figure.text(
        (left.x0 + right.x1) / 2,
        height,
        text,
        ha="center",
        va="bottom",
        fontsize=TITLE + 1,
        weight="bold",
        linespacing=1,
    )


def _draw_bars(figure: Figure, scales: Mapping[str, Normalize]) -> None:
    """A colour bar for each scale, one above the other at the right."""
    width, height = figure.get_size_inches()
    each = (height - TOP - 0.1) / len(scales)
    for number, (name, scale) in enumerate(scales.items()):
        length = min(each - 0.15, 2.5 * CELL)
        bottom = height - TOP - number * each - length
        axes = figure.add_axes(((width - RIGHT + 0.12) / width, bottom / height, BAR / width, length / height))
        bar = figure.colorbar(ScalarMappable(scale, "inferno"), cax=axes)
        bar.ax.tick_params(labelsize=TITLE - 2, length=2, pad=2)
        bar.set_label(f"cosine, {shortened(name, 24)}", fontsize=TITLE - 1, labelpad=2)
