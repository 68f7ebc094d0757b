"""Attention of the feature search (Eqs. 7-8) on whole images.

Queries are crops of any image: search the image they were cut from, or another one. Keys are computed once per image
and queries once per crop; `attend` compares any of them.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from scfs.backbones import Backbone
from scfs.data.views import normalize, square_view
from scfs.method.search import search_attention
from scfs.visualize.queries import Box

# B images, Q queries, C channels, H W (h w) map height and width

LayerTensors = dict[str, Tensor]  # by search layer, shallow to deep
LayerArrays = dict[str, NDArray[np.float32]]


class Searcher:
    """Computes keys of whole images and queries of crops with a backbone, which it puts into evaluation mode.

    Images are resized to side x side pixels and crops to query_side x query_side; `usable_side` gives sides that the
    backbone accepts. A larger side gives finer maps.
    """

    def __init__(self, backbone: Backbone, *, side: int, query_side: int):
        self.backbone, self.side, self.query_side = backbone.eval(), side, query_side

    @property
    def layers(self) -> list[str]:
        """The search layers, shallow to deep."""
        return self.backbone.layers

    def keys(self, images: Sequence[Image.Image]) -> LayerTensors:
        """Maps (B, C, H, W) of whole images at every layer."""
        return self._maps(images, self.side)

    def queries(self, crops: Sequence[Image.Image]) -> LayerTensors:
        """Pooled maps (Q, C) of crops at every layer (Eq. 7)."""
        return {layer: maps.mean(dim=(-2, -1)) for layer, maps in self._maps(crops, self.query_side).items()}

    @torch.no_grad()
    def _maps(self, images: Sequence[Image.Image], side: int) -> LayerTensors:
        device = next(self.backbone.parameters()).device
        batch = torch.stack([square_view(image.convert("RGB"), side) for image in images])
        _, maps = self.backbone(normalize(batch.to(device)))
        return dict(zip(self.layers, (each.float() for each in maps), strict=True))


def attend(queries: LayerTensors, keys: LayerTensors) -> LayerArrays:
    """Cosines (Q, B, H, W) of every query with every position of every image, by layer (Eq. 8)."""
    found = {}
    for layer, query in queries.items():
        attention = search_attention(query[:, None, :, None, None], keys[layer].unsqueeze(1))  # (B, Q, 1, H, W)
        found[layer] = attention.squeeze(2).transpose(0, 1).cpu().numpy()
    return found


def mean_query(queries: LayerTensors) -> LayerTensors:
    """One query (1, C): the mean of several, as for the paper's jigsaw."""
    return {layer: each.mean(dim=0, keepdim=True) for layer, each in queries.items()}


class SearchedImage(NamedTuple):
    """An image, crops of it as queries, and the attention of each query on the image at every search layer."""

    image: Image.Image
    boxes: list[Box]  # of the queries, in the image
    queries: list[Image.Image]
    maps: LayerArrays  # (Q, H, W)


def search_own_image(searcher: Searcher, image: Image.Image, boxes: Sequence[Box]) -> SearchedImage:
    """Search an image for crops of itself, given by their boxes."""
    crops = [image.crop(box) for box in boxes]
    found = attend(searcher.queries(crops), searcher.keys([image]))
    return SearchedImage(image, list(boxes), crops, {layer: maps[:, 0] for layer, maps in found.items()})


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
