"""VOC's numbers equal plain loops, on random objects and on photos, and a case worked out by hand."""

from pathlib import Path

import numpy as np
import pytest
from toy_objects import CLASSES, ToySource, detect
from voc_loops import area, at_11_recalls, average_precisions, iou, written

from scfs.data.annotations import AnnotatedSubset, Objects
from scfs.data.sources import open_annotated
from scfs.evaluate.detect.detections import Detections
from scfs.evaluate.detect.voc_metrics import RECALLS, _sorted, voc_metrics
from scfs.runs.metric import by_name

SHARED = Path(__file__).parents[4] / "shared" / "data"
THRESHOLDS = [0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95]
NONE = Detections(np.zeros((0, 4), np.float32), np.zeros(0, np.float32), np.zeros(0, np.int64))


class PlainSource(ToySource):
    """Without crowds, which VOC does not have."""

    def __init__(self, size=40, **options):
        super().__init__(size, has_masks=False, **options)
        for objects in self.all:
            objects.crowd[:] = False


def assert_equal(source, found):
    metrics, details = voc_metrics(source, found)
    for suffix, average in (("", at_11_recalls), (" (area)", area)):
        expected = average_precisions(source, found, average, THRESHOLDS)
        table = np.array([*expected.values()])  # (K, T)
        assert 0.05 < table.mean() < table[:, 0].mean() < 0.95
        for name, columns in (("AP", slice(None)), ("AP50", slice(0, 1)), ("AP75", slice(5, 6))):
            assert by_name(metrics)[name + suffix].value == pytest.approx(table[:, columns].mean(), abs=1e-9)
            ours = {each: numbers[name + suffix] for each, numbers in details["classes"].items()}
            assert ours == pytest.approx({each: np.mean(row[columns]) for each, row in expected.items()}, abs=1e-9)
    assert len(metrics) == 6
    return details


@pytest.mark.parametrize("seed", range(3))
def test_random_objects(seed):
    source = PlainSource(seed=seed)
    assert sum(source.objects(i).difficult.sum() for i in range(len(source))) > 10
    details = assert_equal(source, detect(source, seed=seed + 10, masks=False))
    assert set(details["classes"]) == set(CLASSES) - {"emu"}


def test_equal_scores_stay_in_the_order_of_the_images():
    source = PlainSource(seed=3)
    found = [Detections(f.boxes, f.scores.round(1), f.labels) for f in detect(source, masks=False)]
    assert_equal(source, found)


@pytest.mark.skipif(not (SHARED / "voc_tiny").is_dir(), reason="no such data beside the project")
def test_photos():
    _, source = open_annotated(f"voc:{SHARED / 'voc_tiny'}")
    source = AnnotatedSubset(source, np.arange(0, len(source), 2))
    assert sum(source.objects(i).difficult.sum() for i in range(len(source))) > 3
    assert_equal(source, detect(source, masks=False))


class OneClass(ToySource):
    """Objects of one class in one image, given by their boxes."""

    object_classes, category_ids, has_masks = ("cat", "dog"), (1, 2), False

    def __init__(self, boxes, difficult):
        count, self.sizes = len(boxes), [[500, 500]]
        nothing = np.zeros(count, np.bool_)
        boxes = np.array(boxes, np.float32).reshape(-1, 4)
        areas = np.zeros(count, np.float32)
        difficult = np.array(difficult, np.bool_)
        self.all = [Objects(boxes, np.zeros(count, np.int64), nothing, difficult, areas, np.arange(count))]


def cats(*boxes):
    """Detections by falling score."""
    scores = np.linspace(0.9, 0.1, len(boxes), dtype=np.float32)
    return [Detections(np.array(boxes, np.float32).reshape(-1, 4), scores, np.zeros(len(boxes), np.int64))]


A, B, C, NOWHERE = (0, 0, 100, 100), (200, 0, 300, 100), (0, 200, 100, 300), (400, 400, 450, 450)


def test_by_hand():
    """A found twice, B found third of those that count, the difficult C found: recalls 1/2 and 1, precisions 1, 2/3."""
    metrics, details = voc_metrics(OneClass([A, B, C], [0, 0, 1]), cats(C, A, A, B))
    expected = {"AP50": (6 * 1 + 5 * 2 / 3) / 11, "AP50 (area)": 0.5 * 1 + 0.5 * 2 / 3}
    for name, value in expected.items():
        assert by_name(metrics)[name].value == pytest.approx(value, abs=1e-12)
        assert details["classes"]["cat"][name] == pytest.approx(value, abs=1e-12)
    assert list(details["classes"]) == ["cat"]


def test_the_object_with_the_best_overlap_decides():
    """Both detections are A itself: the second one does not count for `near`, of which it covers three quarters."""
    near = (0, 0, 100, 130)
    metrics, _ = voc_metrics(OneClass([A, near], [0, 0]), cats(A, A))
    assert by_name(metrics)["AP50 (area)"].value == 0.5
    metrics, _ = voc_metrics(OneClass([A, near], [1, 0]), cats(A, near))  # difficult objects also decide
    assert by_name(metrics)["AP50 (area)"].value == 1.0
    metrics, _ = voc_metrics(OneClass([A, near], [1, 0]), cats(A))
    assert by_name(metrics)["AP50 (area)"].value == 0.0


def test_of_equal_overlaps_the_first_object_decides():
    for difficult, value in (([0, 1], 1.0), ([1, 0], 0.0)):
        metrics, _ = voc_metrics(OneClass([A, A], difficult), cats(A))
        assert by_name(metrics)["AP50 (area)"].value == value


def test_pixels_are_counted_with_the_last_one():
    """Of 10 x 10 and 10 x 5 pixels the IoU is exactly 0.5, which is not above it; of 10 x 6, it is."""
    source = OneClass([(0, 0, 10, 10)], [0])
    for height, value in ((5, 0.0), (6, 1.0)):
        metrics, _ = voc_metrics(source, cats((0, 0, 10, height)))
        assert by_name(metrics)["AP50"].value == pytest.approx(value)


def test_boxes_and_scores_are_rounded_as_in_text():
    rng = np.random.default_rng(0)
    boxes = np.concatenate([rng.uniform(0, 500, (2000, 4)), rng.integers(0, 4000, (2000, 4)) / 8]).astype(np.float32)
    scores = np.concatenate([rng.random(2000), rng.integers(0, 2000, 2000) / 2000]).astype(np.float32)
    found = Detections(boxes, scores, np.zeros(4000, np.int64))
    lines = sorted(written(found), key=lambda line: -line[1])
    assert _sorted([found], num_classes=1).boxes.tolist() == [box for _, _, box in lines]


def test_recalls_are_those_of_detectron2():
    assert RECALLS.tolist() == [step * 0.1 for step in range(11)]
    source = OneClass([(20 * i, 0, 20 * i + 10, 10) for i in range(10)], [0] * 10)
    metrics, _ = voc_metrics(source, cats(*source.all[0].boxes[:3]))
    assert by_name(metrics)["AP50"].value == pytest.approx(3 / 11)  # 0, 0.1 and 0.2; 3 / 10 is below 3 * 0.1


def test_nothing_found():
    metrics, details = voc_metrics(PlainSource(10), [NONE] * 10)
    assert [metric.value for metric in metrics] == [0.0] * 6
    assert details["classes"]["cat"]["AP50 (area)"] == 0.0


def test_no_objects():
    for found in (cats(), cats(A, B)):
        for source in (OneClass([], []), OneClass([A], [1])):
            metrics, details = voc_metrics(source, found)
            assert [metric.value for metric in metrics] == [0.0] * 6
            assert details == {"classes": {}}


def test_crowds_are_difficult():
    source = OneClass([A, B], [0, 0])
    source.all[0].crowd[0] = True
    metrics, _ = voc_metrics(source, cats(A, A, B))
    assert by_name(metrics)["AP (area)"].value == 1.0
    metrics, _ = voc_metrics(source, cats(NOWHERE, B))
    assert by_name(metrics)["AP (area)"].value == 0.5


def test_one_set_of_detections_per_image():
    with pytest.raises(ValueError, match="5 images and 4 sets of detections"):
        voc_metrics(PlainSource(5), [NONE] * 4)


def test_loops():
    assert iou((1, 1, 10, 10), (1, 1, 10, 5)) == 0.5
    assert iou((1, 1, 10, 10), (11, 1, 20, 10)) == 0
