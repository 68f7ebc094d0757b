"""Queries whose region of origin is known: boxes on an object, or on the background, of an image with masks."""

from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scfs.data.annotations import Objects
from scfs.visualize.attend.localization import mask_on_grid
from scfs.visualize.queries import Box, random_boxes

# N objects of an image, GRID x GRID positions of the common grid

Kind = Literal["object", "background"]
KINDS: tuple[Kind, ...] = ("object", "background")
ON_OBJECT, ON_BACKGROUND = 0.5, 0.05  # at least, at most this fraction of a box is covered by an object, by any object
TRIES = 50  # boxes to draw for each query that is wanted


class KnownQuery(NamedTuple):
    """A box and the region that it came from."""

    box: Box
    kind: Kind
    region: NDArray[np.bool_]  # (GRID, GRID): the object, or everything that is not an object
    counted: NDArray[np.bool_]  # (GRID, GRID): without other objects of the same class, and without crowds


def known_queries(
    objects: Objects, masks: NDArray[np.bool_], *, count: int, area: float, seed: int
) -> list[KnownQuery]:
    """At most `count` queries of each kind: random boxes that lie on an object or on the background.

    masks: (N, H, W). area: of a box, as a fraction of the largest square of the image.
    """
    height, width = masks.shape[1:]
    found: dict[Kind, list[KnownQuery]] = {kind: [] for kind in KINDS}
    for box in random_boxes((width, height), TRIES * count, area=area, seed=seed):
        for query in _query_of(box, objects, masks):
            if len(found[query.kind]) < count:
                found[query.kind].append(query)
        if all(len(queries) == count for queries in found.values()):
            break
    return [query for queries in found.values() for query in queries]


def _query_of(box: Box, objects: Objects, masks: NDArray[np.bool_]) -> Iterator[KnownQuery]:
    """The query of a box, if it lies clearly on one object or on none, and its region is not all or nothing."""
    left, top, right, bottom = box
    inside = masks[:, top:bottom, left:right]
    covered = inside.mean(axis=(1, 2)) if len(masks) else np.zeros(1)
    best = int(covered.argmax())
    if covered[best] >= ON_OBJECT and not objects.crowd[best]:
        same_class = (objects.labels == objects.labels[best]) | objects.crowd
        same_class[best] = False
        region, ignored = masks[best], masks[same_class].any(axis=0) & ~masks[best]
        kind: Kind = "object"
    elif inside.any(axis=0).mean() <= ON_BACKGROUND:
        region, ignored = ~masks.any(axis=0), masks[objects.crowd].any(axis=0)
        kind = "background"
    else:
        return
    on_grid, counted = mask_on_grid(region), ~mask_on_grid(ignored)
    if on_grid[counted].any() and not on_grid[counted].all():
        yield KnownQuery(box, kind, on_grid, counted)
