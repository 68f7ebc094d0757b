from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from scfs.data.views import centre_view, normalize
from scfs.visualize.attention import LayerArrays, LayerTensors, Searcher, attend
from scfs.visualize.explore.state.byte_cache import ByteCache
from scfs.visualize.explore.state.gallery import Gallery
from scfs.visualize.features import Sample
from scfs.visualize.neighbours import nearest_images
from scfs.visualize.queries import Box

# B images, C channels, H W map height and width

FEATURE_BYTES = 8 * 2**20


@dataclass(frozen=True)
class Neighbour:
    """An image among the nearest of another."""

    photo: str
    cosine: float  # of the pooled features


class SearchedRun:
    """A network and what it computed of images: keys at every search layer, and pooled features.

    Networks compute in one thread at a time: who shares a run takes turns.
    """

    def __init__(
        self, name: str, searcher: Searcher, sample: Sample, gallery: Gallery, *, feature_side: int, cache_bytes: int
    ):
        self.name, self.searcher, self.sample, self.gallery = name, searcher, sample, gallery
        self.feature_side = feature_side
        self._row_of = {str(index): row for row, index in enumerate(sample.indices.tolist())}
        self._keys: ByteCache[str, LayerTensors] = ByteCache(cache_bytes, _num_bytes)
        self._features: ByteCache[str, Tensor] = ByteCache(FEATURE_BYTES, lambda feature: feature.nbytes)

    def attention(self, photo: str, box: Box, searched: Sequence[str]) -> LayerArrays:
        """Cosines (B, H, W) of a box of an image with every position of the searched images, by layer."""
        queries = self.searcher.queries([self.gallery.image(photo).crop(box)])
        return {layer: found[0] for layer, found in attend(queries, self.keys(searched)).items()}

    def keys(self, photos: Sequence[str]) -> LayerTensors:
        """Maps (B, C, H, W) of images at every layer; those that are not in the cache are computed together."""
        known = {photo: keys for photo in photos if (keys := self._keys.get(photo)) is not None}
        missing = [photo for photo in dict.fromkeys(photos) if photo not in known]
        if missing:
            computed = self.searcher.keys([self.gallery.image(photo) for photo in missing])
            for i, photo in enumerate(missing):
                # Copies, because a view of one image would keep the maps of all in memory.
                known[photo] = {layer: maps[i : i + 1].clone() for layer, maps in computed.items()}
                self._keys.put(photo, known[photo])
        return {layer: torch.cat([known[photo][layer] for photo in photos]) for layer in self.searcher.layers}

    def neighbours(self, photo: str, count: int) -> list[Neighbour]:
        """The nearest images of the sample by pooled features, without the image itself."""
        if not count:
            return []
        nearest = nearest_images(self._feature(photo)[None], self.sample.features, count + 1)
        indices = self.sample.indices[nearest.indices[0]].tolist()
        found = [Neighbour(str(i), c) for i, c in zip(indices, nearest.cosines[0].tolist(), strict=True)]
        return [each for each in found if each.photo != photo][:count]

    @torch.no_grad()
    def _feature(self, photo: str) -> Tensor:
        """The pooled feature (C,) of an image's centre view."""
        if photo in self._row_of:
            return self.sample.features[self._row_of[photo]]
        if (feature := self._features.get(photo)) is None:
            backbone = self.searcher.backbone
            view = centre_view(self.gallery.image(photo), self.feature_side)
            pooled, _ = backbone(normalize(view[None].to(next(backbone.parameters()).device)))
            feature = pooled[0].float().cpu()
            self._features.put(photo, feature)
        return feature


def _num_bytes(keys: LayerTensors) -> int:
    return sum(maps.nbytes for maps in keys.values())
