import numpy as np
import pytest
import torch
from PIL import Image

from scfs.data.annotations import Objects
from scfs.data.scene_source import SceneSource
from scfs.data.views import as_tensor
from scfs.visualize.attend.scoring import CHANCE, GEOMETRY, score_image
from scfs.visualize.attend.truth import known_queries

SIDE = 60


def objects(labels, crowd=()):
    count = len(labels)
    return Objects(
        boxes=np.zeros((count, 4), np.float32),
        labels=np.array(labels),
        crowd=np.array([i in crowd for i in range(count)], np.bool_),
        difficult=np.zeros(count, np.bool_),
        areas=np.zeros(count, np.float32),
        ids=np.arange(count),
    )


def squares():
    """Two squares in the left corners and one in the right half of an image."""
    masks = np.zeros((3, SIDE, SIDE), np.bool_)
    masks[0, :20, :20] = masks[1, -20:, :20] = masks[2, 10:50, 35:] = True
    return masks


class ColourSearcher:
    """Features are colours, so that its attention is perfect on plain objects."""

    layers = ("colour",)

    def keys(self, images):
        return {"colour": torch.stack([as_tensor(image).float() for image in images])}

    def queries(self, crops):
        return {"colour": torch.stack([as_tensor(crop).float().mean(dim=(1, 2)) for crop in crops])}


def test_queries_lie_on_an_object_or_on_the_background():
    masks = squares()
    found = known_queries(objects([0, 1, 2]), masks, count=5, area=0.04, seed=1)
    assert [query.kind for query in found] == ["object"] * 5 + ["background"] * 5
    for left, top, right, bottom, kind in [(*query.box, query.kind) for query in found]:
        covered = masks[:, top:bottom, left:right].mean(axis=(1, 2))
        assert covered.max() >= 0.5 if kind == "object" else covered.sum() <= 0.05


def test_regions_are_those_of_the_queries():
    for query in known_queries(objects([0, 1, 2]), squares(), count=5, area=0.04, seed=1):
        centre = [round(64 / SIDE * (low + high) / 2) for low, high in zip(query.box[:2], query.box[2:], strict=True)]
        assert query.region[centre[1], centre[0]]
        assert query.counted.all()
        assert query.region.mean() == pytest.approx({True: 0.5, False: 0.2}[query.kind == "background"], abs=0.18)


def test_others_of_the_same_class_and_crowds_are_not_counted():
    masks = squares()
    for query in known_queries(objects([0, 0, 2], crowd=[2]), masks, count=5, area=0.04, seed=1):
        left, top, *_ = query.box
        assert not query.counted[32, 60]  # the crowd
        assert query.kind == "background" or left < 20  # no query comes from it
        if query.kind == "object":
            other = query.counted[60, 3] if top < 30 else query.counted[3, 3]
            assert not other
            assert query.region[query.counted].any()


def test_an_image_full_of_one_object_has_no_queries():
    assert known_queries(objects([0]), np.ones((1, SIDE, SIDE), np.bool_), count=3, area=0.1, seed=0) == []
    assert known_queries(objects([]), np.zeros((0, SIDE, SIDE), np.bool_), count=3, area=0.1, seed=0) == []


def test_perfect_attention_scores_one_and_geometry_less():
    masks = squares()
    pixels = np.full((SIDE, SIDE, 3), (20, 20, 220), np.uint8)
    for mask, colour in zip(masks, ((230, 30, 30), (30, 230, 30), (120, 120, 0)), strict=True):
        pixels[mask] = colour
    queries = known_queries(objects([0, 1, 2]), masks, count=6, area=0.01, seed=2)
    scores = score_image(ColourSearcher(), Image.fromarray(pixels), queries)
    for kind in ("object", "background"):
        assert np.mean(scores["colour", kind], axis=0)[0] > 0.97  # cells at edges are mixed
        assert np.mean(scores["colour", kind], axis=0)[1] == 1
        assert {score.auroc for score in scores[CHANCE, kind]} == {0.5}
    assert 0.5 < np.mean(scores[GEOMETRY, "object"], axis=0)[0] < 0.98


def test_scenes_have_queries_of_both_kinds():
    source = SceneSource("val", 6)
    for index in range(6):
        found = known_queries(source.objects(index), source.masks(index), count=2, area=0.1, seed=index)
        assert {query.kind for query in found} == {"object", "background"}
