"""The built-in data set: generated scenes with labels, boxes and masks.

Every scene is a pure function of (seed, split, index), so nothing is stored or downloaded. One object whose shape
and pattern together decide its class (each shape has two patterns and each pattern two shapes) lies on a patchwork of
textures among distractors. Small views therefore often show only background: the case that the paper's search is for.

The patchwork is meant to keep the set learnable without labels. Its colors and textures change inside a scene and
follow the same distribution in all of them, so two views of a scene share little background, and what they have in
common is the object.
"""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating]  # float32 throughout, which the stubs lose track of

CLASSES: tuple[str, ...] = (
    "striped disc",
    "dotted disc",
    "dotted square",
    "checked square",
    "checked triangle",
    "zigzag triangle",
    "zigzag star",
    "ringed star",
    "ringed cross",
    "striped cross",
)
DISTRACTORS = ("disc", "square", "triangle", "star", "cross", "bar", "bar", "blob", "blob")
SIZE = 128
SPLITS = {"train": 0, "val": 1}


class Scene(NamedTuple):
    """One image and what is known about it. The leading axis of boxes and masks is that of objects: always one."""

    image: NDArray[np.uint8]  # (H, W, 3)
    label: int
    boxes: NDArray[np.float32]  # (1, 4) x0 y0 x1 y1 in pixels, x1 and y1 exclusive, tight around the visible mask
    masks: NDArray[np.bool_]  # (1, H, W)


class Thing(NamedTuple):
    """Something to paint. Lengths are in units of the image's width, so that a scene looks the same at every size."""

    shape: str
    pattern: str
    center: tuple[float, float]  # x y
    radius: float
    pose: tuple[float, ...]  # from offsets in radii to the unit shape: rotation and shear (4), then perspective (2)
    colors: Array  # (2, 3) ground and figure of the pattern
    phase: tuple[float, float]
    period: float  # of the pattern, in radii


def scene_label(seed: int, split: str, index: int) -> int:
    """The label of a scene without painting it; every ten consecutive indices hold each class once, in some order."""
    order = _generator(seed, split, index // len(CLASSES), stream=0).permutation(len(CLASSES))
    return int(order[index % len(CLASSES)])


def render_scene(seed: int, split: str, index: int, size: int = SIZE) -> Scene:
    """Paint one scene. Another size gives the same scene at another resolution, not another scene."""
    rng = _generator(seed, split, index, stream=1)
    label = scene_label(seed, split, index)
    canvas = _background(rng, size)
    mask = np.zeros((size, size), np.bool_)
    for _ in range(rng.integers(2, 6)):
        _paint(canvas, mask, _distractor(rng, 0.04, 0.12), is_object=False)
    _paint(canvas, mask, _object(rng, label), is_object=True)
    for _ in range(rng.integers(0, 2)):
        _paint(canvas, mask, _distractor(rng, 0.02, 0.05), is_object=False)
    _light(rng, canvas)
    rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
    box = np.array([[columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]], np.float32)
    image = np.empty((size, size, 3), np.uint8)
    for channel in range(3):  # a third of a transpose's time
        image[..., channel] = canvas[channel]
    return Scene(image, label, box, mask[None])


def _generator(seed: int, split: str, index: int, stream: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, SPLITS[split], index, stream])))


def _spread(rng: np.random.Generator, low: float, high: float, count: int) -> Array:
    """One draw from each part of the range, in random order: all scenes get nearly the same histogram."""
    return (low + (high - low) * (rng.permutation(count) + rng.uniform(0, 1, count)) / count).astype(np.float32)


def _colors(rng: np.random.Generator, saturation: tuple[float, float], values: Array) -> Array:
    """Hues from all around the circle with the given values (brightness): (n,) -> (n, 3)."""
    ramp = (_spread(rng, 0, 6, len(values))[:, None] + np.array([5, 3, 1], np.float32)) % 6
    chroma = _spread(rng, *saturation, len(values))[:, None] * np.clip(np.minimum(ramp, 4 - ramp), 0, 1)
    colors: Array = values[:, None] * (1 - chroma)
    return colors


@cache
def _grid(size: int) -> Array:
    """Pixel centers in units of the width."""
    return ((np.arange(size) + 0.5) / size).astype(np.float32)


def _resized(cells: Array, size: int) -> Array:
    return cv2.resize(cells, (size, size), interpolation=cv2.INTER_CUBIC)


def _noise(rng: np.random.Generator, rows: int, columns: int, size: int) -> Array:
    """Smooth noise in about [-1, 1] with the given number of cells down and across: (size, size)."""
    return _resized(rng.uniform(-1, 1, (rows, columns)).astype(np.float32), size)


def _background(rng: np.random.Generator, size: int) -> Array:
    """A patchwork with a color and a mix of textures per region: (3, size, size).

    Painted at half the resolution: a little out of focus behind the object, and a quarter of the pixels.
    """
    half = (size + 1) // 2
    x = _grid(half)[None, :] + 0.12 * _noise(rng, 6, 6, half)
    y = _grid(half)[:, None] + 0.12 * _noise(rng, 6, 6, half)
    # Voronoi regions: one site per jittered cell of a 3 x 3 grid, so every part of every scene has its own region.
    sites = (np.stack(np.divmod(np.arange(9), 3), -1) + rng.uniform(0, 1, (9, 2))) / 3
    # The site nearest to a point is also the one with the largest x sx + y sy - (sx^2 + sy^2) / 2.
    planes = np.column_stack([sites, -(sites**2).sum(1) / 2]).astype(np.float32)
    weights = (800 * planes) @ np.stack([x, y, np.ones_like(x)]).reshape(3, -1)  # (9, half * half)
    weights -= weights.max(0)
    np.exp(weights, out=weights)
    weights /= weights.sum(0)  # one region's weight is one, except at the seams

    ground = _colors(rng, (0.1, 0.5), _spread(rng, 0.25, 0.8, 9))
    layers = ground.T @ weights  # (3, half * half)
    for rows, columns in ((12, 12), (48, 48), (48, 8), (8, 48)):
        tint = _spread(rng, -0.23, 0.23, 9) * rng.uniform(0.6, 1, (3, 9))
        layers += _noise(rng, rows, columns, half).reshape(-1) * (tint.astype(np.float32) @ weights)
    return np.stack([_resized(layer, size) for layer in layers.reshape(3, half, half)])


def _pose(rng: np.random.Generator, turn: float) -> tuple[float, ...]:
    angle, shear, stretch, *depth = (rng.uniform(-1, 1, 5) * (turn, 0.2, 0.15, 0.12, 0.12)).tolist()
    cos, sin, wide = math.cos(angle), math.sin(angle), math.exp(stretch)
    return wide * cos - shear * sin, wide * sin + shear * cos, -sin / wide, cos / wide, *depth


def _pair(rng: np.random.Generator, low: float, high: float) -> tuple[float, float]:
    return rng.uniform(low, high), rng.uniform(low, high)


def _object(rng: np.random.Generator, label: int) -> Thing:
    pattern, shape = CLASSES[label].split()
    radius = rng.uniform(0.225, 0.335)
    values = np.array([rng.uniform(0.05, 0.25), rng.uniform(0.8, 1.0)], np.float32)
    colors = _colors(rng, (0.05, 0.35), rng.permutation(values))
    return Thing(
        shape,
        pattern,
        center=_pair(rng, 0.85 * radius, 1 - 0.85 * radius),
        radius=radius,
        pose=_pose(rng, turn=0.5),
        colors=colors,
        phase=_pair(rng, 0, 2 * math.pi),
        period=rng.uniform(0.4, 0.52),
    )


def _distractor(rng: np.random.Generator, smallest: float, largest: float) -> Thing:
    shape = DISTRACTORS[rng.integers(len(DISTRACTORS))]
    radius = rng.uniform(smallest, largest) * (2 if shape == "bar" else 1)
    return Thing(
        shape,
        pattern="plain" if rng.uniform() < 0.6 else "mottled",
        center=_pair(rng, 0, 1),
        radius=radius,
        pose=_pose(rng, turn=math.pi),
        colors=_colors(rng, (0.1, 0.6), _spread(rng, 0.1, 0.95, 2)),
        phase=_pair(rng, 0, 2 * math.pi),
        period=rng.uniform(0.5, 0.8),
    )


def _outside(shape: str, x: Array, y: Array, phase: tuple[float, float]) -> Array:
    """Signed distance to the unit shape, negative inside; exact enough within a pixel of the edge."""
    distance: Array
    match shape:
        case "disc":
            distance = np.sqrt(x * x + y * y) - 0.92
        case "square":
            distance = np.maximum(np.abs(x), np.abs(y)) - 0.82
        case "triangle":
            distance = np.maximum(0.866 * np.abs(x) - 0.5 * y, y) - 0.55
        case "cross":
            x, y = np.abs(x), np.abs(y)
            distance = np.maximum(np.maximum(x, y) - 0.98, np.minimum(x, y) - 0.4)
        case "bar":
            distance = np.maximum(np.abs(x) - 1, np.abs(y) - 0.1)
        case "star":
            # Folded onto a tenth of the star, from a tip to a notch, the edge is one line at 0.45 radians to the tip.
            fold = np.abs((np.arctan2(x, -y) + math.pi / 5) % (2 * math.pi / 5) - math.pi / 5)
            distance = np.sqrt(x * x + y * y) * np.sin(fold + 0.45) - 1.1 * math.sin(0.45)
        case _:  # a blob
            angle = np.arctan2(x, -y)
            bumps = 0.15 * np.sin(3 * angle + phase[0]) + 0.1 * np.sin(2 * angle + phase[1])
            distance = np.sqrt(x * x + y * y) - bumps - 0.75
    return distance


def _figure(pattern: str, x: Array, y: Array, phase: tuple[float, float]) -> Array:
    """Positive where the pattern shows its second color; x and y in radians of the pattern's period."""
    u, v = x + phase[0], y + phase[1]
    height: Array
    match pattern:
        case "striped":
            height = np.sin(v)
        case "dotted":
            height = np.cos(u) + np.cos(v) - 0.5
        case "checked":
            height = 2 * np.sin(0.7 * u) * np.sin(0.7 * v)
        case "zigzag":
            height = np.sin(v + 2 * np.arcsin(np.sin(0.8 * u)))
        case "ringed":
            height = np.sin(np.sqrt(x * x + y * y) + phase[0])
        case "mottled":
            height = np.sin(u + 2 * np.sin(v)) + np.sin(1.7 * v - 2 * np.sin(u))
        case _:  # plain
            height = np.full_like(u, -np.inf)
    return height


def _paint(canvas: Array, mask: NDArray[np.bool_], thing: Thing, *, is_object: bool) -> None:
    """Paint a thing and its shadow in place, on its own rectangle only; add an object to the mask, else clear it."""
    size = len(mask)
    reach = 1.6 * thing.radius
    columns, rows = (slice(max(0, int((c - reach) * size)), math.ceil((c + reach) * size)) for c in thing.center)
    x = (_grid(size)[None, columns] - thing.center[0]) / thing.radius
    y = (_grid(size)[rows, None] - thing.center[1]) / thing.radius
    a, b, c, d, e, f = thing.pose
    depth = e * x + (f * y + 1)
    u, v = (a * x + b * y) / depth, (c * x + d * y) / depth

    pixels = thing.radius * size  # per radius: edges are one pixel wide
    outside = _outside(thing.shape, u, v, thing.phase)
    cover = np.clip(0.5 - outside * pixels, 0, 1)
    rate = 2 * math.pi / thing.period
    figure = np.clip(0.5 + _figure(thing.pattern, u * rate, v * rate, thing.phase) * (pixels / rate), 0, 1)
    light = 1 - 0.15 * (x + y)  # from the upper left, so the shadow falls to the lower right
    drop = round(0.1 * thing.radius * size)
    shadow = 1 - 0.5 * np.clip(0.5 - 4 * outside, 0, 1)
    shadow = shadow[: len(shadow) - drop, : shadow.shape[1] - drop]
    for patch, ground, ink in zip(canvas[:, rows, columns], *thing.colors, strict=True):  # one color channel at a time
        patch[drop:, drop:] *= shadow
        patch += cover * ((ground + figure * (ink - ground)) * light - patch)
    mask[rows, columns][cover >= 0.5] = is_object


def _light(rng: np.random.Generator, canvas: Array) -> None:
    """Contrast, exposure and light falling off across the scene, and scaling from [0, 1] to [0, 255], in place."""
    grid = _grid(canvas.shape[1]) - 0.5
    contrast, exposure = rng.uniform(0.7, 1.1), rng.uniform(0.75, 1.25)
    across, down = _pair(rng, -0.5, 0.5)
    canvas -= 0.5
    canvas *= contrast
    canvas += 0.5
    canvas *= (255 * exposure) * (1 + across * grid[None, :] + down * grid[:, None])
    canvas += 0.5
    np.clip(canvas, 0, 255, out=canvas)
