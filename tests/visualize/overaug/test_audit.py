"""Similarity by crop scale against plain loops, and the rule of the advice."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image

from scfs.evaluate.resampling import interval, resampled_means
from scfs.visualize.overaug.advice import advise, reaching
from scfs.visualize.overaug.images import Crops
from scfs.visualize.overaug.similarity import SCALES, Audit, Similarity, draw_views, empty_fractions, similarities


def test_similarities_equal_loops():
    generator = torch.Generator().manual_seed(0)
    views = F.normalize(torch.randn(2, 3, 4, generator=generator), dim=-1)
    wholes = F.normalize(torch.randn(5, 4, generator=generator), dim=-1)
    own, other, closer = similarities(views, wholes, 2)
    for scale in range(2):
        cosines = [
            [sum(a * b for a, b in zip(v, w, strict=True)) for w in wholes.tolist()] for v in views[scale].tolist()
        ]
        assert own[scale] == pytest.approx(sum(row[2] for row in cosines) / 3, abs=1e-6)
        rest = [(row[2], value) for row in cosines for i, value in enumerate(row) if i != 2]
        assert other[scale] == pytest.approx(sum(value for _, value in rest) / 12, abs=1e-6)
        assert closer[scale] == pytest.approx(sum(mine > value for mine, value in rest) / 12)


def test_views_without_an_object():
    objects = np.zeros((10, 20), bool)
    objects[3, 12] = True
    boxes = torch.tensor([[[0.6, 0.3, 0.65, 0.4], [0.65, 0.0, 1, 1]], [[0, 0, 1, 1], [0, 0, 0.65, 0.4]]])
    assert empty_fractions(boxes, objects).tolist() == [0.5, 0.0]
    assert np.isnan(empty_fractions(boxes, None)).all()
    assert np.isnan(empty_fractions(boxes, np.zeros((10, 20), bool))).all()


def test_views_have_the_areas_of_the_scales():
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (300, 400, 3), dtype=np.uint8))
    views = draw_views(image, Crops(32, 16), num_local_views=3, seed=5)
    assert (views.global_views.shape, views.local_views.shape) == ((10, 2, 3, 32, 32), (10, 3, 3, 16, 16))
    assert torch.equal(views.local_views, draw_views(image, Crops(32, 16), num_local_views=3, seed=5).local_views)
    areas = (views.boxes[..., 2:] - views.boxes[..., :2]).prod(dim=-1)
    expected = torch.tensor(SCALES).unsqueeze(1).expand(10, 5)
    torch.testing.assert_close(areas[:-1], expected[:-1], rtol=0.03, atol=0)
    assert (areas[-1] > 0.9).all()


def test_intervals_are_over_images_that_have_a_value():
    values = np.array([[0.0, 1.0], [1.0, np.nan], [0.0, 1.0], [1.0, 1.0]])
    [[low, high], constant] = interval(resampled_means(values))
    assert 0.05 < low < 0.2 < 0.8 < high < 0.95
    assert constant.tolist() == [1.0, 1.0]


def test_a_level_is_reached_between_two_scales():
    scales, values = (0.01, 0.1, 1.0), np.array([0.5, 0.8, 1.0])
    assert reaching(scales, values, 0.9) == pytest.approx(0.1 * 10**0.5)
    assert reaching(scales, values, 0.3) == 0.01
    assert reaching(scales, values, 1.1) is None


def audit(local, global_, empty):
    """Three images with the same curves over four scales."""
    scales = (0.01, 0.1, 0.4, 1.0)
    rows = [np.tile(np.array(each, np.float64), (3, 1)) for each in (local, global_, empty)]
    return Audit(scales, *(Similarity(each, 0 * each, each) for each in rows[:2]), rows[2])


UNKNOWN = [np.nan] * 4


def test_the_rule():
    """90 % and 10 % for local views, 95 % and 5 % for global ones; the stricter of similarity and objects counts."""
    similar = advise(audit([0.5, 0.9, 0.95, 1], [0.5, 0.8, 0.95, 1], UNKNOWN), random=False)
    assert (similar.local_scale, similar.global_scale) == ((0.1, 0.4), (0.4, 1.0))
    assert "--views.local_scale 0.1 0.4 --views.global_scale 0.4 1," in similar.sentence
    assert "object" not in similar.sentence
    assert [(each.value, each.interval) for each in similar.metrics] == [
        (pytest.approx(0.1), pytest.approx((0.1, 0.1))),
        (pytest.approx(0.4), pytest.approx((0.4, 0.4))),
    ]
    objects = advise(audit([0.5, 0.9, 0.95, 1], [0.5, 0.8, 0.95, 1], [0.6, 0.3, 0.1, 0]), random=False)
    assert objects.local_scale == (0.4, 0.63)  # 5 % between 0.4 and 1
    assert "another and at least 90 % hold an object, and from an area of 0.63 on at least 95 %" in objects.sentence


def test_local_views_keep_a_range_and_global_ones_begin_no_lower():
    found = advise(audit([0.5, 0.8, 0.9, 1], [1, 1, 1, 1], UNKNOWN), random=False)
    assert (found.local_scale, found.global_scale) == ((0.4, 0.6), (0.4, 1.0))


def test_weights_that_cannot_tell_images_apart_give_no_scales():
    found = advise(audit([0.5, 0.6, 0.7, 0.8], [0.5, 0.6, 0.7, 0.94], UNKNOWN), random=True)
    assert (found.local_scale, found.global_scale, found.metrics) == (None, None, [])
    assert "keep --views.local_scale and --views.global_scale, since this network is too weak to tell" in found.sentence
    assert (
        "at most 80 % of local views are closer to their own image than to another (90 % are needed)" in found.sentence
    )
    assert "and at most 94 % of global views are closer" in found.sentence
    assert found.sentence.endswith("the weights are random, so that their similarity means little.")


def test_global_views_alone_may_suit():
    found = advise(audit([0.5, 0.6, 0.7, 0.8], [0.5, 0.6, 0.95, 0.97], UNKNOWN), random=False)
    assert (found.local_scale, found.global_scale) == (None, (0.4, 1.0))
    assert found.sentence.startswith("Advice: --views.global_scale 0.4 1, since from an area of 0.4 on at least 95 %")
    assert "; and keep --views.local_scale, since this network is too weak to tell" in found.sentence
    assert "at most 80 % of local views" in found.sentence
    assert [each.name for each in found.metrics] == ["smallest global area"]


def test_only_what_misses_its_level_is_a_reason():
    """Rounded down: 94.6 % of views are not the 95 % that are needed."""
    found = advise(audit([0.5, 0.8, 0.96, 0.96], [0.5, 0.6, 0.7, 0.946], UNKNOWN), random=False)
    assert "at most 94 % of global views are closer" in found.sentence
    assert "of local views" not in found.sentence


def test_a_run_without_local_views_gets_flags_that_work_together():
    """Advice on local views comes with what makes some; otherwise it is about global views alone."""
    new = "--method.contrast scfs --views.num_local_views 4 --views.local_size 32"
    suited = advise(audit([0.5, 0.9, 0.95, 1], [0.5, 0.8, 0.95, 1], UNKNOWN), random=False, new_local_views=new)
    assert suited.sentence.startswith(
        "Advice: --views.global_scale 0.4 1 or, with local views, which this run does not"
    )
    assert f"have, {new} --views.local_scale 0.1 0.4 --views.global_scale 0.4 1, since" in suited.sentence
    for levels in ([0.5, 0.6, 0.95, 0.97], [0.5, 0.6, 0.7, 0.8]):
        weak = advise(audit([0.5, 0.6, 0.7, 0.8], levels, UNKNOWN), random=False, new_local_views=new)
        assert "--views.local" not in weak.sentence


def test_with_random_weights_only_objects_count():
    found = advise(audit([0.5] * 4, [0.5] * 4, [0.6, 0.1, 0.05, 0]), random=True)
    assert (found.local_scale, found.global_scale) == ((0.1, 0.4), (0.4, 1.0))
    assert "of local views hold an object, and from an area of 0.4 on at least 95 % of global views" in found.sentence
    assert "closer" not in found.sentence
