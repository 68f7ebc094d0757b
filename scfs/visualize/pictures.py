from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from PIL import Image
from torch import Tensor

from scfs.backbones import Backbone
from scfs.data.views import MultiCrop, as_tensor, normalize
from scfs.errors import UserError
from scfs.method.search import search_attention

# Diagnostics that are drawn, by their names in the log; `teacher_entropy` is that of older runs.
HEALTH = {
    "entropy/view": "teacher entropy",
    "teacher_entropy": "teacher entropy",
    "spread/view": "spread of the head's outputs",
    "feature_spread": "spread of features",
}
COLOURS = ("tab:red", "tab:orange", "tab:cyan", "tab:pink", "tab:olive", "tab:purple", "tab:brown", "tab:blue")


def save_views(path: Path, images: Sequence[Image.Image], multi_crop: MultiCrop, seed: int) -> None:
    """Example views: each row an image with the places of its views, then its global and its local views."""
    columns = 1 + len(multi_crop.kinds)
    figure, axes = _grid(len(images), columns)
    for row, (image, cells) in enumerate(zip(images, axes, strict=True)):
        views = multi_crop(image, seed + row)
        cells[0].imshow(image)
        boxes = torch.cat([views.global_boxes, views.local_boxes])
        flat = [*views.global_views, *views.local_views]
        for i, (box, view, cell) in enumerate(zip(boxes.tolist(), flat, cells[1:], strict=True)):
            colour = "white" if i < len(views.global_views) else COLOURS[(i - 2) % len(COLOURS)]
            cells[0].add_patch(_outline(box, image.size, colour))
            cell.imshow(view.movedim(0, -1).numpy())
            _frame(cell, colour)
    names = ["image", "global 1", "global 2", *(f"local {i + 1}" for i in range(columns - 3))]
    _titles(axes[0], names)
    _save(figure, path)


@torch.no_grad()
def save_attention(
    path: Path, images: Sequence[Image.Image], backbone: Backbone, *, size: int, query_size: int, seed: int
) -> None:
    """What feature search finds: per image two local views and, at each search layer, where they look (Eq. 8).

    The image is seen at 1.5 times the training size where the network can take that, so that the deepest map is more
    than a few places.
    """
    layers, queries = backbone.layers, 2
    figure, axes = _grid(len(images), 1 + queries * (1 + len(layers)))
    rng = np.random.default_rng(seed)
    side = _larger(backbone, size)
    backbone.eval()
    for image, cells in zip(images, axes, strict=True):
        cells[0].imshow(image)
        whole = normalize(as_tensor(image.resize((side, side), Image.Resampling.BICUBIC)))[None]
        key_maps = backbone(whole)[1]
        for query in range(queries):
            box = _square(image, rng)
            crop = image.crop(box).resize((query_size, query_size), Image.Resampling.BICUBIC)
            query_maps = backbone(normalize(as_tensor(crop))[None])[1]
            first = 1 + query * (1 + len(layers))
            share = [box[0] / image.width, box[1] / image.height, box[2] / image.width, box[3] / image.height]
            cells[0].add_patch(_outline(share, image.size, COLOURS[query]))
            cells[first].imshow(crop)
            _frame(cells[first], COLOURS[query])
            for cell, keys, asked in zip(cells[first + 1 :], key_maps, query_maps, strict=False):
                attention = search_attention(asked.unsqueeze(0), keys.unsqueeze(0))[0, 0, 0]  # (H, W)
                _overlay(cell, image, attention)
    _titles(axes[0], ["image", *(["query", *layers] * queries)])
    _save(figure, path)


def _larger(backbone: Backbone, size: int) -> int:
    try:
        backbone.check_sizes(side := int(1.5 * size))
    except UserError:
        return size
    return side


def save_curves(path: Path, rows: Sequence[dict[str, float]]) -> None:
    """Losses, diagnostics and k-NN over the steps of a run."""
    figure = Figure(figsize=(11, 3), layout="constrained")
    FigureCanvasAgg(figure)
    losses, health, knn = figure.subplots(1, 3)
    steps = [row for row in rows if "loss" in row]
    for name in dict.fromkeys(name for row in steps for name in row):  # of a resumed run, names may have changed
        points = [(row["step"], row[name]) for row in steps if name in row]
        if name.startswith("loss/"):
            losses.plot(*zip(*points, strict=True), label=name.removeprefix("loss/"))
        elif name in HEALTH:
            health.plot(*zip(*points, strict=True), label=HEALTH[name])
    scored = [row for row in rows if "knn_top1" in row]
    knn.plot(
        [row["step"] for row in scored], [100 * row["knn_top1"] for row in scored], marker="o", label="k-NN top-1 %"
    )
    for axis in (losses, health, knn):
        axis.set_xlabel("step")
        axis.grid(alpha=0.3)
        if axis.lines:
            axis.legend(fontsize=8)
    _save(figure, path)


def _grid(rows: int, columns: int) -> tuple[Figure, Any]:
    figure = Figure(figsize=(1.15 * columns, 1.15 * rows + 0.25), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False)
    for axis in axes.flat:
        axis.set_xticks([])
        axis.set_yticks([])
    return figure, axes


def _titles(cells: Any, names: Sequence[str]) -> None:
    for cell, name in zip(cells, names, strict=True):
        cell.set_title(name, fontsize=8)


def _frame(cell: Any, colour: str) -> None:
    for spine in cell.spines.values():
        spine.set(edgecolor="black" if colour == "white" else colour, linewidth=2)


def _outline(box: Sequence[float], image_size: tuple[int, int], colour: str) -> Rectangle:
    width, height = image_size
    x0, y0, x1, y1 = box
    return Rectangle((x0 * width, y0 * height), (x1 - x0) * width, (y1 - y0) * height, fill=False, ec=colour, lw=1.2)


def _square(image: Image.Image, rng: np.random.Generator) -> tuple[int, int, int, int]:
    """A random square of a tenth of the image's smaller square."""
    side = int(0.32 * min(image.size))
    left, top = (int(rng.integers(0, extent - side + 1)) for extent in image.size)
    return left, top, left + side, top + side


def _overlay(cell: Any, image: Image.Image, attention: Tensor) -> None:
    """Attention over the image, from its own smallest to its own largest value."""
    low, high = attention.min(), attention.max()
    scaled = ((attention - low) / (high - low).clamp(min=1e-6)).numpy()
    cell.imshow(image.convert("L"), cmap="gray")
    cell.imshow(scaled, cmap="inferno", alpha=0.65, extent=(0, image.width, image.height, 0), interpolation="bilinear")
    cell.set(xlim=(0, image.width), ylim=(image.height, 0))


def _save(figure: Figure, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
