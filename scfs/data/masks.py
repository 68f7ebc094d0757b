"""Masks of objects as COCO writes them: polygons, and runs of pixels down the columns (RLE).

The pixels are those of COCO's own tools, whose rules for the edge of a polygon differ from OpenCV's and Pillow's.
"""

from array import array
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.bool_]  # (H, W)
Integers = NDArray[np.int32]

FINE = 5  # COCO's tools draw polygons on a grid this much finer
NOTHING, POLYGONS, RUNS = 0, 1, 2  # kinds of segmentation


def compact(numbers: "array[Any]") -> NDArray[Any]:
    """The same numbers as a NumPy array, without a copy."""
    return np.frombuffer(numbers, numbers.typecode) if len(numbers) else np.empty(0, numbers.typecode)


class BadSegmentation(Exception):  # noqa: N818 - of one object; the others may be fine
    """A segmentation that is neither polygons nor RLE."""


class Segments(NamedTuple):
    """The segmentations of many objects in a few arrays, which loader processes share."""

    values: Integers  # of a polygon, x y x y ... on the fine grid; of RLE, the lengths of the runs
    part_ends: NDArray[np.int64]  # in `values`, where each polygon or RLE ends
    object_ends: NDArray[np.int64]  # in `part_ends`, where each object ends
    kinds: NDArray[np.int8]

    def mask(self, row: int, width: int, height: int) -> Mask:
        """The mask of one object in an image of this size."""
        first = int(self.object_ends[row - 1]) if row else 0
        ends = self.part_ends[max(first - 1, 0) : self.object_ends[row]].tolist()
        parts = [self.values[a:b] for a, b in pairwise(ends if first else [0, *ends])]
        if self.kinds[row] == RUNS:
            return mask_of_runs(parts[0], width, height)
        mask = np.zeros((height, width), np.bool_)
        for part in parts:
            mask |= mask_of_polygon(part.reshape(-1, 2), width, height)
        return mask


class SegmentsBuilder:
    """Collects segmentations, one per object."""

    def __init__(self) -> None:
        self.values, self.part_ends, self.object_ends, self.kinds = array("i"), array("q"), array("q"), array("b")

    def add(self, segmentation: Any) -> tuple[int, int]:
        """Add a segmentation in COCO's format; returns the width and height of an RLE, 0 for polygons.

        Raises `BadSegmentation` before anything is added.
        """
        size = (0, 0)
        if segmentation in (None, [], {}):
            kind, parts = NOTHING, list[Integers]()
        elif isinstance(segmentation, list):
            kind, parts = POLYGONS, [fine_polygon(polygon) for polygon in segmentation]
        else:
            lengths, size = runs_of(segmentation)
            kind, parts = RUNS, [lengths]
        for part in parts:
            self.values.frombytes(part.tobytes())
            self.part_ends.append(len(self.values))
        self.object_ends.append(len(self.part_ends))
        self.kinds.append(kind)
        return size

    def build(self) -> Segments:
        """All segmentations added."""
        return Segments(*map(compact, (self.values, self.part_ends, self.object_ends, self.kinds)))


def fine_polygon(polygon: Any) -> Integers:
    """A polygon, x y x y ... in pixels, on the fine grid."""
    try:
        points = np.asarray(polygon, np.float64)
    except (TypeError, ValueError):
        raise BadSegmentation from None
    if points.ndim != 1 or len(points) < 6 or len(points) % 2 or not (np.abs(points) < 1e6).all():
        raise BadSegmentation
    return (FINE * points + 0.5).astype(np.int32)


def runs_of(segmentation: Any) -> tuple[Integers, tuple[int, int]]:
    """The lengths of the runs of an RLE, pixels outside, inside, outside, ...; and its width and height.

    Its counts are compressed (a string) or not (a list).
    """
    try:
        height, width = (int(extent) for extent in segmentation["size"])
        counts = segmentation["counts"]
        lengths = np.array(decompressed(counts) if isinstance(counts, str) else counts, np.int64)
    except (KeyError, TypeError, ValueError, IndexError, OverflowError):
        raise BadSegmentation from None
    if lengths.ndim != 1 or (lengths < 0).any() or lengths.sum() != width * height or min(width, height) <= 0:
        raise BadSegmentation
    return lengths.astype(np.int32), (width, height)


def decompressed(text: str) -> list[int]:
    """The run lengths in COCO's compressed RLE.

    Each number is written in groups of five bits, the lowest first, as characters from "0"; the sixth bit means that
    another group follows, and the fifth bit of the last group is the sign. From the fourth on, a number is the
    difference to the one two before it.
    """
    counts: list[int] = []
    bits = shift = 0
    for code in text.encode("ascii"):
        group = code - 48
        bits |= (group & 0x1F) << shift
        shift += 5
        if not group & 0x20:
            number = bits - (1 << shift) if group & 0x10 else bits
            counts.append(number + counts[-2] if len(counts) > 2 else number)
            bits = shift = 0
    if shift:
        raise ValueError("cut short")
    return counts


def mask_of_runs(lengths: Sequence[int] | Integers, width: int, height: int) -> Mask:
    """The mask of run lengths, which go down the columns and start outside."""
    inside = np.arange(len(lengths)) % 2 == 1
    return np.repeat(inside, lengths).reshape(width, height).T


def mask_of_polygon(points: Integers, width: int, height: int) -> Mask:
    """The pixels inside a polygon (points, 2) on the fine grid, as `rleFrPoly` of COCO's tools finds them."""
    x, y = _boundary(points)
    moves = np.flatnonzero(x[1:] != x[:-1]) + 1
    # Where the boundary crosses the centre of a column of pixels, the mask changes from that row on.
    crossed = np.minimum(x[moves], x[moves - 1])
    column, rest = np.divmod(2 * crossed + 1 - FINE, 2 * FINE)
    kept = (rest == 0) & (column >= 0) & (column < width)
    mask = np.zeros((height, width), np.bool_)
    if not kept.any():
        return mask
    column, higher = column[kept], np.minimum(y[moves], y[moves - 1])[kept]
    row = np.ceil((higher + 0.5) / FINE - 0.5).clip(0, height).astype(np.int64)
    left, right, top, bottom = column.min(), column.max() + 1, row.min(), row.max() + 1
    changes = np.bincount((column - left) * (bottom - top) + row - top, minlength=(right - left) * (bottom - top))
    inside = np.cumsum(changes.reshape(right - left, bottom - top), axis=1) % 2 == 1  # (columns, rows)
    mask[top : bottom - 1, left:right] = inside.T[:-1]  # each column is crossed an even number of times
    return mask


def _boundary(points: Integers) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Every point of the fine grid on the closed line through the points, in order; ends of edges come twice."""
    start = points.astype(np.int64)
    step = np.roll(start, -1, axis=0) - start
    lengths = np.abs(step).max(axis=1)  # of each edge, along the axis on which it is longer
    edge = np.repeat(np.arange(len(start)), lengths + 1)
    first = np.cumsum(lengths + 1) - (lengths + 1)
    done = np.arange(len(edge)) - first[edge]
    wide = np.abs(step[:, 0]) >= np.abs(step[:, 1])
    along, across = np.where(wide, 0, 1), np.where(wide, 1, 0)
    rows = np.arange(len(start))
    backward = step[rows, along] < 0  # COCO's tools walk an edge from its lower end, which decides the rounding
    low = np.where(backward[:, None], start + step, start)
    rise = np.where(backward, -1, 1) * step[rows, across]
    slope = np.divide(rise, lengths, out=np.zeros(len(start)), where=lengths > 0)
    done = np.where(backward[edge], lengths[edge] - done, done)
    main = low[rows, along][edge] + done
    other = (low[rows, across][edge] + slope[edge] * done + 0.5).astype(np.int64)
    return np.where(wide[edge], main, other), np.where(wide[edge], other, main)
