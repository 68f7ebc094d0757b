"""Attention of the feature search (Eqs. 7-8) on whole images, as arrays.

A query is a crop of any image: search the image it was cut from, a jigsaw of that image or another image with
`attention_maps(backbone, queries, image, ...)`.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from scfs.backbones import Backbone
from scfs.data.views import as_tensor, normalize
from scfs.method.search import search_attention

# Q queries, C channels, H W (h w) map height and width

Box = tuple[int, int, int, int]  # left, top, right, bottom, in pixels
JIGSAW = (3, 0, 1, 2)  # every tile moves


class SearchedImage(NamedTuple):
    """An image, crops of it as queries, and the attention of each query on the image at every search layer."""

    image: Image.Image
    boxes: list[Box]  # of the queries, in the image
    queries: list[Image.Image]
    maps: dict[str, NDArray[np.float32]]  # (Q, H, W) by layer, shallow to deep


def search_own_image(
    backbone: Backbone, image: Image.Image, boxes: Sequence[Box], *, side: int, query_side: int
) -> SearchedImage:
    """Search an image for crops of itself, given by their boxes."""
    queries = [image.crop(box) for box in boxes]
    maps = attention_maps(backbone, queries, image, side=side, query_side=query_side)
    return SearchedImage(image, list(boxes), queries, maps)


@torch.no_grad()
def attention_maps(
    backbone: Backbone, queries: Sequence[Image.Image], image: Image.Image, *, side: int, query_side: int
) -> dict[str, NDArray[np.float32]]:
    """Cosines (Q, H, W) of each query with every position of an image, by search layer, shallow to deep.

    The image is resized to side x side pixels and the queries to query_side x query_side; `usable_side` gives sides
    that the backbone accepts. A larger side gives finer maps. The backbone is put into evaluation mode.
    """
    backbone.eval()
    device = next(backbone.parameters()).device
    key_maps = backbone(_batch([image], side).to(device))[1]
    query_maps = backbone(_batch(queries, query_side).to(device))[1]
    attention = {}
    for layer, keys, query in zip(backbone.layers, key_maps, query_maps, strict=True):
        found = search_attention(query.unsqueeze(1), keys.unsqueeze(0))  # (1, Q, 1, H, W)
        attention[layer] = found[0, :, 0].float().cpu().numpy()
    return attention


def usable_side(backbone: Backbone, side: int) -> int:
    """The nearest image size that a backbone accepts: for a transformer, a multiple of its patch size.

    Raises a UserError if the backbone does not accept that either, as one with a fixed input size.
    """
    patch_size: Any = getattr(getattr(backbone.net, "patch_embed", None), "patch_size", None)
    if patch_size is not None:
        patch = max(patch_size)
        side = max(patch, patch * round(side / patch))
    backbone.check_sizes(side)
    return side


def random_boxes(image_size: tuple[int, int], count: int, *, area: float = 0.1, seed: int = 0) -> list[Box]:
    """Square boxes of an image (width, height); area is a fraction of the largest square that fits into it."""
    rng = np.random.default_rng(seed)
    side = max(1, int(area**0.5 * min(image_size)))
    boxes = []
    for _ in range(count):
        left, top = (int(rng.integers(0, extent - side + 1)) for extent in image_size)
        boxes.append((left, top, left + side, top + side))
    return boxes


def jigsaw(image: Image.Image, order: Sequence[int] = JIGSAW) -> Image.Image:
    """An image with its 2 x 2 tiles rearranged; order has the tile (0-3, row by row) for each position.

    An odd last row or column is cut off.
    """
    width, height = image.width // 2, image.height // 2
    corners = [(x, y) for y in (0, height) for x in (0, width)]
    rearranged = Image.new(image.mode, (2 * width, 2 * height))
    for corner, tile in zip(corners, order, strict=True):
        left, top = corners[tile]
        rearranged.paste(image.crop((left, top, left + width, top + height)), corner)
    return rearranged


def _batch(images: Sequence[Image.Image], side: int) -> Tensor:
    """Normalised images (V, 3, side, side)."""
    resized = [image.convert("RGB").resize((side, side), Image.Resampling.BICUBIC) for image in images]
    return normalize(torch.stack([as_tensor(image) for image in resized]))
