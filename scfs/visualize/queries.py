"""Boxes of an image that are searched for."""

import itertools
from typing import NamedTuple

import numpy as np
from PIL import Image

Box = tuple[int, int, int, int]  # left, top, right, bottom, in pixels


class Example(NamedTuple):
    """An image, the boxes of its queries, and the image that is searched for them."""

    image: Image.Image
    boxes: list[Box]
    searched: Image.Image

    @property
    def queries(self) -> list[Image.Image]:
        return [self.image.crop(box) for box in self.boxes]


def random_boxes(image_size: tuple[int, int], count: int, *, area: float = 0.1, seed: int = 0) -> list[Box]:
    """Square boxes of an image (width, height); area is a fraction of the largest square that fits into it."""
    rng = np.random.default_rng(seed)
    side = max(1, int(area**0.5 * min(image_size)))
    boxes = []
    for _ in range(count):
        left, top = (int(rng.integers(0, extent - side + 1)) for extent in image_size)
        boxes.append((left, top, left + side, top + side))
    return boxes


def tiles(image_size: tuple[int, int]) -> list[Box]:
    """The paper's 2 x 2 jigsaw: the four quarters of an image, row by row."""
    width, height = image_size
    columns, rows = ((0, width // 2, width), (0, height // 2, height))
    return [
        (left, top, max(right, left + 1), max(bottom, top + 1))
        for top, bottom in itertools.pairwise(rows)
        for left, right in itertools.pairwise(columns)
    ]
