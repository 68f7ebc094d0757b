from functools import cache

import numpy as np
import pytest

from scfs.data.scenes import CLASSES, Scene, render_scene, scene_label

SCENES = 400
GOLDEN = [
    ((0, "train", 0), 4, [55, 35, 114, 97], [134.2, 147.1, 97.3, 129.4]),
    ((0, "train", 4999), 5, [28, 52, 83, 104], [94.1, 101.2, 130.5, 103.1]),
    ((7, "val", 12), 1, [43, 51, 113, 103], [119.0, 160.8, 121.2, 140.6]),
]


@cache
def scenes() -> list[Scene]:
    return [render_scene(0, "train", index) for index in range(SCENES)]


def same(a: Scene, b: Scene) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


def test_a_scene_is_a_pure_function_of_its_key():
    for index in (150, 3, 77):  # neither their order nor what was painted before matters
        assert same(render_scene(0, "train", index), scenes()[index])


def test_painting_does_not_touch_the_global_generator():
    before = np.random.get_state()[1].copy()
    render_scene(0, "val", 5)
    assert np.array_equal(before, np.random.get_state()[1])


@pytest.mark.parametrize(("key", "label", "box", "means"), GOLDEN)
def test_scenes_do_not_change(key, label, box, means):
    # Pooled means, not a checksum: the last bit of a sine differs between builds of NumPy.
    scene = render_scene(*key)
    assert scene.label == label
    assert scene.boxes[0].tolist() == pytest.approx(box, abs=1)
    quarters = scene.image.reshape(2, 64, 2, 64, 3).mean((1, 3, 4)).reshape(-1)
    assert quarters.tolist() == pytest.approx(means, abs=0.5)


@pytest.mark.parametrize("other", [(1, "train", 3), (0, "val", 3), (0, "train", 4), (3, "train", 0)])
def test_seed_split_and_index_each_give_another_scene(other):
    difference = np.abs(render_scene(*other).image.astype(float) - scenes()[3].image)
    assert difference.mean() > 20


@pytest.mark.parametrize("split", ["train", "val"])
def test_labels_are_balanced_and_not_in_a_fixed_order(split):
    labels = np.array([scene_label(0, split, index) for index in range(1000)])
    assert np.bincount(labels).tolist() == [100] * len(CLASSES)
    # The index modulo 10 should reveal next to nothing about the class.
    table = np.zeros((10, len(CLASSES)))
    np.add.at(table, (np.arange(1000) % 10, labels), 1)
    assert table.max() < 30


def test_the_cheap_label_is_the_label_of_the_scene():
    assert [scene.label for scene in scenes()] == [scene_label(0, "train", index) for index in range(SCENES)]


def test_types_and_shapes():
    image, label, boxes, masks = scenes()[0]
    assert image.dtype == np.uint8
    assert image.shape == (128, 128, 3)
    assert image.flags.c_contiguous
    assert type(label) is int
    assert boxes.dtype == np.float32
    assert boxes.shape == (1, 4)
    assert masks.dtype == np.bool_
    assert masks.shape == (1, 128, 128)


def test_boxes_are_tight_around_masks():
    for scene in scenes():
        mask = scene.masks[0]
        x0, y0, x1, y1 = scene.boxes[0].astype(int)
        inside = mask[y0:y1, x0:x1]
        assert inside.sum() == mask.sum()
        assert inside[0].any()
        assert inside[-1].any()
        assert inside[:, 0].any()
        assert inside[:, -1].any()


def test_every_class_has_a_visible_object_of_fair_size():
    areas = np.array([scene.masks.mean() for scene in scenes()])
    assert areas.min() > 0.04
    assert areas.max() < 0.35
    labels = np.array([scene.label for scene in scenes()])
    for label in range(len(CLASSES)):
        assert 0.08 < areas[labels == label].mean() < 0.25


def test_the_pattern_is_where_the_mask_is():
    # Both colors of the pattern, one dark and one light: far more contrast inside the mask than around it.
    grey = [scene.image.mean(2) for scene in scenes()]
    inside = [image[scene.masks[0]].std() for image, scene in zip(grey, scenes(), strict=True)]
    around = [image[~scene.masks[0]].std() for image, scene in zip(grey, scenes(), strict=True)]
    assert np.mean(inside) > 1.3 * np.mean(around)


def test_many_small_views_show_only_background():
    rng = np.random.default_rng(0)
    empty = []
    for scene in scenes():
        for area, stretch in zip(rng.uniform(0.05, 0.14, 20), rng.uniform(0.75, 1.33, 20), strict=True):
            width, height = int(128 * (area * stretch) ** 0.5), int(128 * (area / stretch) ** 0.5)
            x, y = rng.integers(129 - width), rng.integers(129 - height)
            empty.append(scene.masks[0, y : y + height, x : x + width].mean() < 0.1)
    assert 0.4 < np.mean(empty) < 0.65


def test_color_does_not_reveal_the_class():
    # Nearest class mean of the mean color, of the whole image and of the object alone: chance is 10 %.
    labels = np.array([scene.label for scene in scenes()])
    for colors in (
        np.array([scene.image.mean((0, 1)) for scene in scenes()]),
        np.array([scene.image[scene.masks[0]].mean(0) for scene in scenes()]),
    ):
        train, held_out = slice(0, SCENES // 2), slice(SCENES // 2, None)
        means = np.stack([colors[train][labels[train] == label].mean(0) for label in range(len(CLASSES))])
        nearest = ((colors[held_out, None] - means) ** 2).sum(-1).argmin(1)
        assert (nearest == labels[held_out]).mean() < 0.17


@pytest.mark.parametrize("size", [33, 64, 256])
def test_another_size_is_the_same_scene_at_another_resolution(size):
    scene, reference = render_scene(0, "train", 7, size), scenes()[7]
    assert scene.image.shape == (size, size, 3)
    assert scene.label == reference.label
    assert scene.boxes / size == pytest.approx(reference.boxes / 128, abs=1.5 / min(size, 128))
    assert scene.masks.mean() == pytest.approx(reference.masks.mean(), rel=0.05)
    assert scene.image.mean((0, 1)) == pytest.approx(reference.image.mean((0, 1)), abs=3)


def test_an_unknown_split_is_an_error():
    with pytest.raises(KeyError, match="test"):
        render_scene(0, "test", 0)
