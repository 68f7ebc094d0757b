"""Draws the objects that a detector found in images beside those that are there."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray
from PIL import Image, ImageColor

from scfs.runs.files import write_atomic

# N objects of an image, H W height and width of the image, h w as it is drawn

# Okabe and Ito's colours, which people with any kind of colour vision can tell apart; without black, which looks like
# shadow.
COLOURS = ("#D55E00", "#56B4E9", "#F0E442", "#009E73", "#CC79A7", "#0072B2", "#E69F00")
LINES = ("-", "--", ":")  # around boxes, once all colours are used
OPACITY = 0.35  # of masks
DPI = 128  # a power of two, so that sizes in inches are exact to the pixel
FONT, TITLE_FONT = 6, 7  # points
MIN_SCORE = 0.5  # of predictions that are drawn
SIDE, GAP, TITLE = 340, 8, 20  # pixels: the longer side of an image, space around images, height of a title
NAME_LENGTH, MARGIN = 18, 1.5  # letters; pixels around a name
PALETTE = 256  # colours in the file: with all of them, photos take four times the space
EXACT = np.array([ImageColor.getrgb(colour) for colour in (*COLOURS, "white", "black")], np.uint8)


class DrawnObjects(NamedTuple):
    """The objects to draw in one image."""

    boxes: NDArray[np.float32]  # (N, 4) x0 y0 x1 y1 in pixels of the image
    labels: NDArray[np.int64]  # (N,) indices in the classes
    scores: NDArray[np.float32] | None = None  # (N,) of predictions
    masks: NDArray[np.bool_] | None = None  # (N, H, W)


NOTHING = DrawnObjects(np.zeros((0, 4), np.float32), np.zeros(0, np.int64))


class _Mark(NamedTuple):
    """How one object is drawn, in pixels of the drawing."""

    box: list[float]
    text: str
    colour: str
    line: str
    mask: NDArray[np.float32] | None  # (h, w)


Style = tuple[str, str]  # colour and line
Rect = tuple[float, float, float, float]  # x0 y0 x1 y1 in pixels of the drawing


def save_detections(
    path: Path,
    images: Sequence[Image.Image],
    truths: Sequence[DrawnObjects] | None,
    founds: Sequence[DrawnObjects],
    classes: Sequence[str],
    *,
    min_score: float = MIN_SCORE,
) -> None:
    """Each row: an image with its objects, if they are known, then with the predictions that have at least this score.

    Images are drawn with the same longer side, whatever their size. Every class has one colour in the whole picture;
    with more classes than colours, also another line around its boxes.
    """
    first = "image" if truths is None else "ground truth: {}"
    truths = [NOTHING for _ in images] if truths is None else truths
    founds = [_with_score(found, min_score) for found in founds]
    styles = _styles([*truths, *founds])
    sizes = [_drawn_size(image) for image in images]
    figure, cells = _grid(sizes)
    for image, truth, found, size, row in zip(images, truths, founds, sizes, cells, strict=True):
        titles = first.format(_count(truth)), f"predictions with score {min_score:g} or more: {_count(found)}"
        for cell, objects, title in zip(row, (truth, found), titles, strict=True):
            drawn = image.convert("RGB").resize(size, Image.Resampling.BICUBIC)
            _draw(cell, drawn, _marks(objects, image.size, size, classes, styles))
            cell.set_title(title, fontsize=TITLE_FONT, pad=4)
    _save(figure, path)


def _count(objects: DrawnObjects) -> str:
    return f"{len(objects.boxes)} {'object' if len(objects.boxes) == 1 else 'objects'}"


def _with_score(found: DrawnObjects, min_score: float) -> DrawnObjects:
    """The predictions with at least this score."""
    assert found.scores is not None
    kept = np.flatnonzero(found.scores >= min_score)
    masks = None if found.masks is None else found.masks[kept]
    return DrawnObjects(found.boxes[kept], found.labels[kept], found.scores[kept], masks)


def _styles(drawn: Sequence[DrawnObjects]) -> dict[int, Style]:
    """Colour and line of each class in the picture, the most frequent class first."""
    labels, counts = np.unique(np.concatenate([objects.labels for objects in drawn]), return_counts=True)
    styles = [(colour, line) for line in LINES for colour in COLOURS]
    order = labels[np.argsort(-counts, kind="stable")].tolist()
    return {label: styles[number % len(styles)] for number, label in enumerate(order)}


def _drawn_size(image: Image.Image) -> tuple[int, int]:
    """Width and height of an image in the picture."""
    scale = SIDE / max(image.size)
    return max(round(scale * image.width), 1), max(round(scale * image.height), 1)


def _marks(
    objects: DrawnObjects,
    size: tuple[int, int],
    drawn_size: tuple[int, int],
    classes: Sequence[str],
    styles: Mapping[int, Style],
) -> list[_Mark]:
    """The objects of an image, the largest first: smaller ones are drawn over them."""
    boxes = objects.boxes * np.tile(np.divide(drawn_size, size), 2)
    marks = []
    for row in np.argsort(-(boxes[:, 2:] - boxes[:, :2]).prod(axis=1), kind="stable").tolist():
        label = int(objects.labels[row])
        score = "" if objects.scores is None else f" {objects.scores[row]:.2f}"
        mask = None if objects.masks is None else _resized(objects.masks[row], drawn_size)
        marks.append(_Mark(boxes[row].tolist(), _short(classes[label]) + score, *styles[label], mask))
    return marks


def _short(name: str) -> str:
    return name if len(name) <= NAME_LENGTH else f"{name[: NAME_LENGTH - 1]}\N{HORIZONTAL ELLIPSIS}"


def _resized(mask: NDArray[np.bool_], size: tuple[int, int]) -> NDArray[np.float32]:
    """A mask (H, W) in another size (h, w), with values between 0 and 1 along its edges."""
    resized = Image.fromarray(mask.astype(np.uint8) * 255).resize(size, Image.Resampling.BILINEAR)
    return np.asarray(resized, np.float32) / np.float32(255)


def _draw(cell: Any, image: Image.Image, marks: Sequence[_Mark]) -> None:
    """An image with its objects."""
    pixels = np.asarray(image, np.float32) / 255
    for mark in marks:
        if mark.mask is not None and mark.mask.max() > 0.5:
            pixels += OPACITY * mark.mask[..., None] * (np.array(to_rgb(mark.colour), np.float32) - pixels)
            bordered = np.pad(mark.mask, 1)  # or there would be no line where a mask ends with the image
            x, y = (np.arange(side) - 0.5 for side in reversed(bordered.shape))
            cell.contour(x, y, bordered, levels=[0.5], colors=[mark.colour], linewidths=0.9)
        _outline(cell, mark)
    cell.imshow(pixels, extent=(0, image.width, image.height, 0), interpolation="nearest")
    cell.set(xlim=(0, image.width), ylim=(image.height, 0))
    _write_names(cell, marks, limits=image.size)


def _outline(cell: Any, mark: _Mark) -> None:
    """A box on a white line, so that it stands out from any image."""
    x0, y0, x1, y1 = mark.box
    for colour, line, width in (("white", "-", 1.7), (mark.colour, mark.line, 1.0)):
        cell.add_patch(Rectangle((x0, y0), x1 - x0, y1 - y0, fill=False, ec=colour, ls=line, lw=width))


def _write_names(cell: Any, marks: Sequence[_Mark], *, limits: tuple[int, int]) -> None:
    """The class and score of each object, at a corner of its box."""
    taken: list[Rect] = []
    for mark in marks:
        dark = np.dot(to_rgb(mark.colour), (0.299, 0.587, 0.114)) < 0.5
        text = cell.text(0, 0, mark.text, fontsize=FONT, va="top", color="white" if dark else "black")
        text.set_bbox({"facecolor": mark.colour, "edgecolor": "none", "pad": MARGIN * 72 / DPI})
        extent = text.get_window_extent()
        taken.append(_free_spot(mark.box, (extent.width + 2 * MARGIN, extent.height + 2 * MARGIN), limits, taken))
        text.set_position((taken[-1][0] + MARGIN, taken[-1][1] + MARGIN))


def _free_spot(box: Sequence[float], size: tuple[float, float], limits: tuple[int, int], taken: Sequence[Rect]) -> Rect:
    """Where a name of this size covers earlier ones least: on a box's upper edge, in its corners, or below it."""
    (x0, y0, x1, y1), (width, height) = box, size
    corners = [(x0, y0 - height), (x0, y0), (x1 - width, y0), (x0, y1 - height), (x1 - width, y1 - height), (x0, y1)]
    inside = [(min(max(x, 0), limits[0] - width), min(max(y, 0), limits[1] - height)) for x, y in corners]
    spots = [(x, y, x + width, y + height) for x, y in inside]
    return min(spots, key=lambda spot: sum(_intersection(spot, other) for other in taken))


def _intersection(a: Rect, b: Rect) -> float:
    return max(min(a[2], b[2]) - max(a[0], b[0]), 0) * max(min(a[3], b[3]) - max(a[1], b[1]), 0)


def _grid(sizes: Sequence[tuple[int, int]]) -> tuple[Figure, list[list[Any]]]:
    """Two cells per row for images of these widths and heights, to the pixel, with space for titles above them."""
    width, height = 2 * SIDE + 3 * GAP, sum(TITLE + h + GAP for _, h in sizes)
    figure, cells, top = Figure(figsize=(width / DPI, height / DPI), dpi=DPI), list[list[Any]](), float(height)
    FigureCanvasAgg(figure)
    for w, h in sizes:
        bottom = top - TITLE - h
        lefts = [GAP + (SIDE - w) / 2 + column * (SIDE + GAP) for column in range(2)]
        cells.append([figure.add_axes((left / width, bottom / height, w / width, h / height)) for left in lefts])
        top = bottom - GAP
    for cell in (cell for row in cells for cell in row):
        cell.set_axis_off()
    return figure, cells


def _save(figure: Figure, path: Path) -> None:
    """Write a PNG with few colours, dithered."""
    path.parent.mkdir(parents=True, exist_ok=True)
    canvas = figure.canvas
    assert isinstance(canvas, FigureCanvasAgg)
    canvas.draw()
    drawn = _with_palette(Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB"))
    write_atomic(path, lambda file: drawn.save(file, "PNG", optimize=True))


def _with_palette(image: Image.Image) -> Image.Image:
    """The image in few colours, dithered, except that those of the classes, white and black are exact."""
    some = image.resize((image.width // 3, image.height // 3), Image.Resampling.NEAREST)  # k-means of all takes seconds
    common = some.quantize(PALETTE - len(EXACT), kmeans=1).getpalette() or []
    palette = Image.new("P", (1, 1))
    palette.putpalette([*EXACT.ravel().tolist(), *common])
    indices = np.array(image.quantize(palette=palette, dither=Image.Dither.FLOYDSTEINBERG))
    pixels = np.asarray(image)
    for index, colour in enumerate(EXACT):
        indices[(pixels == colour).all(axis=-1)] = index
    drawn = Image.fromarray(indices, "P")
    drawn.putpalette(palette.getpalette() or [])
    return drawn
