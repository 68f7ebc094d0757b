"""What the page asks for, computed; nothing here knows of HTTP."""

import base64
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scfs.data.decode import Unreadable
from scfs.visualize.explore.state.gallery import FractionBox, Gallery
from scfs.visualize.explore.state.searched_run import SearchedRun
from scfs.visualize.queries import Box


class Session:
    """Runs, and images to search with them."""

    def __init__(self, runs: Sequence[SearchedRun], gallery: Gallery, *, num_neighbours: int):
        self.runs, self.gallery, self.num_neighbours = runs, gallery, num_neighbours
        self.first_photo = _first_readable(gallery)

    def describe(self) -> dict[str, Any]:
        """Runs with their layers and sizes, the number of images, and the image to start with."""
        return {
            "runs": [
                {
                    "name": run.name,
                    "backbone": run.searcher.backbone.name,
                    "layers": run.searcher.layers,
                    "side": run.searcher.side,
                    "query_side": run.searcher.query_side,
                }
                for run in self.runs
            ],
            "num_images": len(self.gallery.source),
            "num_sampled": len(self.runs[0].sample.indices),
            "num_neighbours": self.num_neighbours,
            "first_photo": self.first_photo,
        }

    def titles(self, first: int, count: int) -> list[dict[str, str]]:
        """Names and titles of consecutive images of the source."""
        indices = range(first, min(first + count, len(self.gallery.source)))
        return [{"photo": str(index), "title": self.gallery.title(str(index))} for index in indices]

    def search(self, run: int, photo: str, box: FractionBox, *, neighbours: bool, by: int) -> dict[str, Any]:
        """Attention of one run for a box of an image: on the image, then on its neighbours, if requested.

        by: the run whose pooled features decide which images are neighbours. Maps are float32 in base64, little
        endian, row by row.
        """
        size = self.gallery.image(photo).size
        found = self.runs[by].neighbours(photo, self.num_neighbours if neighbours else 0)
        photos = [photo, *(each.photo for each in found)]
        attention = self.runs[run].attention(photo, to_pixels(box, size), photos)
        cosines = [None, *(each.cosine for each in found)]
        return {
            "shapes": {layer: maps.shape[1:] for layer, maps in attention.items()},
            "images": [
                {
                    "photo": name,
                    "title": self.gallery.title(name),
                    "cosine": cosine,
                    "maps": {layer: _encode(maps[i]) for layer, maps in attention.items()},
                }
                for i, (name, cosine) in enumerate(zip(photos, cosines, strict=True))
            ],
        }


def to_pixels(box: FractionBox, image_size: tuple[int, int]) -> Box:
    """A box in pixels, of at least one each way, around a box in fractions of an image (width, height)."""
    width, height = image_size
    left, top = min(int(box[0] * width), width - 1), min(int(box[1] * height), height - 1)
    right, bottom = math.ceil(box[2] * width), math.ceil(box[3] * height)
    return left, top, max(right, left + 1), max(bottom, top + 1)


def _encode(values: NDArray[np.float32]) -> str:
    return base64.b64encode(values.astype("<f4").tobytes()).decode("ascii")


def _first_readable(gallery: Gallery) -> str:
    """The first image that can be read, among the first hundred."""
    for index in range(min(100, len(gallery.source))):
        try:
            gallery.image(str(index))
        except Unreadable:
            continue
        return str(index)
    return "0"
