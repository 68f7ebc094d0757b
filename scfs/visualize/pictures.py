"""Draws what the other modules of this package compute; nothing is computed here."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from scfs.view_batch import ViewBatch
from scfs.visualize.attention import SearchedImage
from scfs.visualize.grid import TITLE, add_titles, grid, save_figure, shortened
from scfs.visualize.projection import Projection

# Okabe and Ito's colours, which people with any kind of colour vision can tell apart; without yellow, pale on white.
COLOURS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
SAME, OTHER = "#0072B2", "#D55E00"  # of neighbours: the query's class, or another one
GREY, MARKERS = "#BBBBBB", "o^s"


def save_views(path: Path, images: Sequence[Image.Image], views: Sequence[ViewBatch]) -> None:
    """Example views; each row: an image with the boxes of its views, then its global and its local views."""
    num_global, num_local = len(views[0].global_views), len(views[0].local_views)
    figure, axes = grid(len(images), 1 + num_global + num_local)
    for image, batch, cells in zip(images, views, axes, strict=True):
        cells[0].imshow(image)
        boxes = [*batch.global_boxes.tolist(), *batch.local_boxes.tolist()]
        for i, (box, view) in enumerate(zip(boxes, [*batch.global_views, *batch.local_views], strict=True)):
            _outline(cells[0], [edge * extent for edge, extent in zip(box, 2 * image.size, strict=True)], i)
            cells[1 + i].imshow(view.movedim(0, -1).numpy())
            _frame(cells[1 + i], *_line(i))
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
            _outline(cells[0], box, query)
            first = 1 + query * (1 + len(layers))
            cells[first].imshow(crop)
            _frame(cells[first], *_line(query))
            for cell, attention in zip(cells[first + 1 :], found.maps.values(), strict=False):
                overlay(cell, found.image, attention[query])
    add_titles(axes[0], ["image", *(name for i in range(num_queries) for name in (f"query {i + 1}", *layers))])
    save_figure(figure, path)


def save_neighbours(
    path: Path,
    queries: Sequence[Image.Image],
    captions: Sequence[str],
    found: Sequence[Sequence[Image.Image]],
    cosines: Tensor,
    same_class: Tensor | None,
) -> None:
    """Each row: a query image with its caption, then its nearest images with their cosines.

    cosines: (queries, k). same_class: (queries, k) bool, for the colour of frames; None without classes.
    """
    figure, axes = grid(len(queries), 1 + cosines.shape[1], titles=True)
    for row, cells in enumerate(axes):
        cells[0].imshow(queries[row])
        add_titles(cells[:1], captions[row : row + 1])
        for column, (cell, image) in enumerate(zip(cells[1:], found[row], strict=True)):
            cell.imshow(image)
            if same_class is not None:
                _frame(cell, SAME if same_class[row, column] else OTHER)
        add_titles(cells[1:], [f"{cosine:.2f}" for cosine in cosines[row].tolist()])
    save_figure(figure, path)


def save_projection(path: Path, projection: Projection, labels: Tensor, classes: Sequence[str]) -> None:
    """A point per image on the first two principal components, coloured by class if there are classes.

    labels: (images,), -1 for images without a class.
    """
    figure = Figure(figsize=(8, 5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for name, chosen, style in _groups(labels, classes):
        x, y = projection.points[chosen].T.numpy()
        axes.scatter(x, y, s=18, alpha=0.75, linewidths=0, label=name, **style)
    if classes:
        axes.legend(fontsize=TITLE, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5), markerscale=1.5)
    for number, (axis, fraction) in enumerate(
        zip((axes.xaxis, axes.yaxis), projection.explained.tolist(), strict=True)
    ):
        axis.set_label_text(f"component {number + 1} ({fraction:.0%} of the variance)")
    axes.grid(alpha=0.3)
    save_figure(figure, path)


def _groups(labels: Tensor, classes: Sequence[str]) -> list[tuple[str, Tensor, dict[str, Any]]]:
    """Points that share a style: name, mask (images,), colour and marker. With many classes, only the largest few."""
    if not classes:
        return [("images", labels >= -1, {"color": SAME, "marker": "o"})]
    counts = labels[labels >= 0].bincount(minlength=len(classes))
    styles = [{"color": colour, "marker": marker} for marker in MARKERS for colour in COLOURS]
    shown = [int(label) for label in counts.argsort(descending=True, stable=True) if counts[label]]
    if len(shown) > len(styles):
        shown = shown[: len(COLOURS)]
    shown = sorted(shown)
    names = [shortened(classes[label], 28) for label in shown]
    groups = [(name, labels == label, style) for name, label, style in zip(names, shown, styles, strict=False)]
    rest = ~sum((mask for _, mask, _ in groups), torch.zeros_like(labels, dtype=torch.bool))
    others = [(f"{int((counts > 0).sum()) - len(shown)} others", rest, {"color": GREY, "marker": "."})]
    return [*(others if rest.any() else []), *groups]


def _line(number: int) -> tuple[str, str]:
    """Colour and line style of the box and frame of a view or query; dashed once all colours are used."""
    return COLOURS[number % len(COLOURS)], ("-", "--")[number // len(COLOURS) % 2]


def _frame(cell: Any, colour: str, style: str = "-") -> None:
    for spine in cell.spines.values():
        spine.set(edgecolor=colour, linewidth=2.5, linestyle=style)


def _outline(cell: Any, box: Sequence[float], number: int) -> None:
    """A box (left, top, right, bottom) in pixels, on a white line so that it stands out from any image."""
    x0, y0, x1, y1 = box
    for (colour, style), width in ((("white", "-"), 2.0), (_line(number), 1.3)):
        cell.add_patch(Rectangle((x0, y0), x1 - x0, y1 - y0, fill=False, ec=colour, lw=width, ls=style))


def overlay(cell: Any, image: Image.Image, attention: NDArray[np.float32]) -> None:
    """Attention (H, W) over the image in grey, scaled from its smallest to its largest value."""
    extent = (0, image.width, image.height, 0)
    cell.imshow(image.convert("L"), cmap="gray", extent=extent)
    cell.imshow(attention, cmap="inferno", alpha=0.65, extent=extent, interpolation="bilinear")
    cell.set(xlim=(0, image.width), ylim=(image.height, 0))
