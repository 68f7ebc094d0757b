"""How similar views of every crop scale are to their image, and how many of them hold no object."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from scfs.backbones import Backbone
from scfs.data.loader import derive_seed
from scfs.data.views import MultiCrop, normalize
from scfs.visualize.overaug.images import Crops

# I images, S scales, V any views, C channels, H W height and width of an image

SCALES = tuple(float(f"{scale:.2g}") for scale in np.geomspace(0.02, 1, 10))  # areas of crops
BATCH = 128
Values = NDArray[np.float64]


class Similarity(NamedTuple):
    """Cosines of the features of views of one kind with those of whole images: means over the views of an image."""

    own: Values  # (I, S) with the image that the view is cut from
    other: Values  # (I, S) with other images, on average
    closer: Values  # (I, S) fraction of pairs of a view and another image in which its own image is the more similar


class Audit(NamedTuple):
    """What happens to views as their crops become smaller."""

    scales: tuple[float, ...]
    local: Similarity
    global_: Similarity
    empty: Values  # (I, S) fraction of views that hold no object; NaN where the objects of an image are unknown

    @property
    def knows_objects(self) -> bool:
        """Whether the objects of any image are known."""
        return not np.isnan(self.empty).all()


@torch.no_grad()
def unit_features(backbone: Backbone, images: Tensor) -> Tensor:
    """L2-normalised pooled features (V, C) of uint8 images (V, 3, H, W), on the CPU."""
    device = next(backbone.parameters()).device
    features = [backbone(normalize(chunk.to(device)))[0].float().cpu() for chunk in images.split(BATCH)]
    return F.normalize(torch.cat(features), dim=-1)


class ViewsOfScales(NamedTuple):
    """The views of an image at every scale."""

    global_views: Tensor  # (S, V, 3, h, w)
    local_views: Tensor  # (S, V, 3, h, w)
    boxes: Tensor  # (S, V, 4) of all of them, x0 y0 x1 y1 from 0 to 1


def draw_views(image: Image.Image, crops: Crops, *, num_local_views: int, seed: int) -> ViewsOfScales:
    """Global and local views as in training, except that all have one scale; then those of the next scale."""
    batches = []
    for number, scale in enumerate(SCALES):
        of_scale = crops._replace(global_scale=(scale, scale), local_scale=(scale, scale))
        multi_crop = MultiCrop(**of_scale._asdict(), num_local_views=num_local_views)
        batches.append(multi_crop(image, derive_seed(seed, number)))
    return ViewsOfScales(
        torch.stack([each.global_views for each in batches]),
        torch.stack([each.local_views for each in batches]),
        torch.stack([torch.cat([each.global_boxes, each.local_boxes]) for each in batches]),
    )


def similarities(views: Tensor, wholes: Tensor, row: int) -> tuple[Values, Values, Values]:
    """Own, other and closer (S,), as in `Similarity`, of the views (S, V, C) of the image in a row of wholes (I, C)."""
    cosines = views @ wholes.T  # (S, V, I)
    own = cosines[..., row]
    others = torch.cat([cosines[..., :row], cosines[..., row + 1 :]], dim=-1)
    closer = (own.unsqueeze(-1) > others).double().mean(dim=(1, 2))
    return own.double().mean(dim=1).numpy(), others.double().mean(dim=(1, 2)).numpy(), closer.numpy()


def empty_fractions(boxes: Tensor, objects: NDArray[np.bool_] | None) -> Values:
    """The fraction (S,) of views, given by their boxes (S, V, 4), without a pixel of any object (H, W).

    NaN if there is no object that a view could hold, or none is known.
    """
    if objects is None or not objects.any():
        return np.full(len(boxes), np.nan)
    height, width = objects.shape
    pixels = (boxes * torch.tensor([width, height, width, height])).round().long().tolist()
    return np.array([np.mean([not objects[y0:y1, x0:x1].any() for x0, y0, x1, y1 in views]) for views in pixels])


def collect(
    rows: Iterator[tuple[ViewsOfScales, NDArray[np.bool_] | None]], backbone: Backbone, wholes: Tensor
) -> Audit:
    """The audit of images, given by their views and the pixels of their objects, in the order of wholes (I, C)."""
    local, global_, empty = list[Sequence[Values]](), list[Sequence[Values]](), list[Values]()
    for row, (views, objects) in enumerate(rows):
        for each, found in ((views.local_views, local), (views.global_views, global_)):
            features = unit_features(backbone, each.flatten(0, 1)).unflatten(0, each.shape[:2])
            found.append(similarities(features, wholes, row))
        empty.append(empty_fractions(views.boxes, objects))
    return Audit(SCALES, _stacked(local), _stacked(global_), np.stack(empty))


def _stacked(rows: Sequence[Sequence[Values]]) -> Similarity:
    own, other, closer = (np.stack(part) for part in zip(*rows, strict=True))
    return Similarity(own, other, closer)
