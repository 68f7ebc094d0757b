"""Draws what the other modules of this package compute; nothing is computed here."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.colors import Normalize
from matplotlib.patches import Rectangle
from numpy.typing import NDArray
from PIL import Image

from scfs.view_batch import ViewBatch
from scfs.visualize.attention import SearchedImage
from scfs.visualize.grid import add_titles, grid, save_figure

# Okabe and Ito's colours, which people with any kind of colour vision can tell apart; without yellow, pale on white.
COLOURS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")


def save_views(path: Path, images: Sequence[Image.Image], views: Sequence[ViewBatch]) -> None:
    """Example views; each row: an image with the boxes of its views, then its global and its local views."""
    num_global, num_local = len(views[0].global_views), len(views[0].local_views)
    figure, axes = grid(len(images), 1 + num_global + num_local)
    for image, batch, cells in zip(images, views, axes, strict=True):
        cells[0].imshow(image)
        boxes = [*batch.global_boxes.tolist(), *batch.local_boxes.tolist()]
        for i, (box, view) in enumerate(zip(boxes, [*batch.global_views, *batch.local_views], strict=True)):
            outline(cells[0], [edge * extent for edge, extent in zip(box, 2 * image.size, strict=True)], i)
            cells[1 + i].imshow(view.movedim(0, -1).numpy())
            frame(cells[1 + i], *line(i))
    names = [f"global {i + 1}" for i in range(num_global)] + [f"local {i + 1}" for i in range(num_local)]
    add_titles(axes[0], ["image", *names])
    save_figure(figure, path)


def save_attention(path: Path, searched: Sequence[SearchedImage]) -> None:
    """Each row: an image, then each of its queries with the attention on the image at every search layer."""
    layers, num_queries = list(searched[0].maps), len(searched[0].queries)
    figure, axes = grid(len(searched), 1 + num_queries * (1 + len(layers)))
    for found, cells in zip(searched, axes, strict=True):
        cells[0].imshow(found.image)
        for query, (box, crop) in enumerate(zip(found.boxes, found.queries, strict=True)):
            outline(cells[0], box, query)
            first = 1 + query * (1 + len(layers))
            cells[first].imshow(crop)
            frame(cells[first], *line(query))
            for cell, attention in zip(cells[first + 1 :], found.maps.values(), strict=False):
                overlay(cell, found.image, attention[query])
    add_titles(axes[0], ["image", *(name for i in range(num_queries) for name in (f"query {i + 1}", *layers))])
    save_figure(figure, path)


def line(number: int) -> tuple[str, str]:
    """Colour and line style of the box and frame of a view or query; dashed once all colours are used."""
    return COLOURS[number % len(COLOURS)], ("-", "--")[number // len(COLOURS) % 2]


def frame(cell: Any, colour: str, style: str = "-") -> None:
    """Colour the frame of a cell."""
    for spine in cell.spines.values():
        spine.set(edgecolor=colour, linewidth=2.5, linestyle=style)


def outline(cell: Any, box: Sequence[float], number: int) -> None:
    """A box (left, top, right, bottom) in pixels, on a white line so that it stands out from any image."""
    x0, y0, x1, y1 = box
    for (colour, style), width in ((("white", "-"), 2.0), (line(number), 1.3)):
        cell.add_patch(Rectangle((x0, y0), x1 - x0, y1 - y0, fill=False, ec=colour, lw=width, ls=style))


def overlay(cell: Any, image: Image.Image, attention: NDArray[np.float32], scale: Normalize | None = None) -> None:
    """Attention (H, W) over the image in grey; without a scale, from its smallest to its largest value."""
    extent = (0, image.width, image.height, 0)
    cell.imshow(image.convert("L"), cmap="gray", vmin=0, vmax=255, extent=extent)
    cell.imshow(attention, cmap="inferno", norm=scale, alpha=0.65, extent=extent, interpolation="bilinear")
    cell.set(xlim=(0, image.width), ylim=(image.height, 0))
