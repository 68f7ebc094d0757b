"""COCO's numbers equal those of pycocotools, on random objects and on photos."""

import contextlib
import io
import json
from pathlib import Path

import numpy as np
import pytest
from pycocotools import mask as pycoco_masks
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from toy_objects import CATEGORIES, CLASSES, ToySource, detect

from scfs.data.annotations import AnnotatedSubset
from scfs.data.sources import open_annotated
from scfs.evaluate.detect.coco_metrics import STATS, coco_metrics
from scfs.evaluate.detect.detections import Detections, as_coco, decode_masks, encode_masks
from scfs.runs.metric import by_name

SHARED = Path(__file__).parents[4] / "shared" / "data"
NONE = Detections(np.zeros((0, 4), np.float32), np.zeros(0, np.float32), np.zeros(0, np.int64), ())


def truth_of(source):
    """A source in COCO's format, as pycocotools reads it from files."""
    images, annotations = [], []
    for index in range(len(source)):
        width, height = source.image_size(index)
        images.append({"id": source.image_id(index), "width": width, "height": height})
        objects, masks = source.objects(index), source.masks(index)
        for row, (x0, y0, x1, y1) in enumerate(objects.boxes.tolist()):
            annotation = {
                "id": int(objects.ids[row]) + 1,
                "image_id": source.image_id(index),
                "category_id": source.category_ids[objects.labels[row]],
                "bbox": [x0, y0, x1 - x0, y1 - y0],
                "area": float(objects.areas[row]),
                "iscrowd": int(objects.crowd[row]),
            }
            if masks is not None:
                annotation["segmentation"] = pycoco_masks.encode(np.asfortranarray(masks[row], np.uint8))
            annotations.append(annotation)
    categories = [{"id": i, "name": name} for i, name in zip(source.category_ids, source.object_classes, strict=True)]
    return {"info": {}, "images": images, "annotations": annotations, "categories": categories}


def results_of(source, found):
    """Through JSON, as from a result file."""
    entries = [
        entry
        for i, each in enumerate(found)
        for entry in as_coco(each, image_id=source.image_id(i), category_ids=source.category_ids)
    ]
    return json.loads(json.dumps(entries))


def pycocotools(truth, results, kind):
    """The twelve numbers, and AP, AP50 and AP75 of every category that has objects."""
    if kind == "segm":  # or it would take the areas of boxes for those of masks
        results = [{key: value for key, value in entry.items() if key != "bbox"} for entry in results]
    with contextlib.redirect_stdout(io.StringIO()):
        data = COCO()
        data.dataset = truth
        data.createIndex()
        evaluation = COCOeval(data, data.loadRes(results), kind)
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    precision = evaluation.eval["precision"][:, :, :, 0, 2]  # (T, R, K)
    by_category = {
        category: [precision[:, :, k].mean(), precision[0, :, k].mean(), precision[5, :, k].mean()]
        for k, category in enumerate(evaluation.params.catIds)
        if (precision[:, :, k] > -1).any()
    }
    return evaluation.stats, by_category


def assert_equal(source, found, truth, *, kinds=("box", "mask")):
    metrics, details = coco_metrics(source, found)
    assert list(details) == list(kinds)
    names = dict(zip(source.object_classes, source.category_ids, strict=True))
    for kind in kinds:
        stats, by_category = pycocotools(truth, results_of(source, found), {"box": "bbox", "mask": "segm"}[kind])
        assert 0.05 < stats[0] < stats[1] < 0.95  # neither all right nor all wrong
        ours = [-1 if details[kind][name] is None else details[kind][name] for name in STATS]
        np.testing.assert_allclose(ours, stats, rtol=0, atol=1e-9)
        for name, value in zip(("AP", "AP50", "AP75"), stats, strict=False):
            assert by_name(metrics)[f"{kind} {name}"].value == pytest.approx(value, abs=1e-9)
        assert {names[name] for name in details[kind]["classes"]} == set(by_category)
        for name, numbers in details[kind]["classes"].items():
            ours = [numbers["AP"], numbers["AP50"], numbers["AP75"]]
            np.testing.assert_allclose(ours, by_category[names[name]], rtol=0, atol=1e-9)
    assert len(metrics) == 3 * len(kinds)
    return details


@pytest.mark.parametrize("seed", range(3))
def test_random_objects(seed):
    source = ToySource(seed=seed)
    found = detect(source, seed=seed + 10)
    assert any(len(source.objects(i)) == 0 and len(found[i]) for i in range(len(source)))
    assert sum(source.objects(i).crowd.sum() for i in range(len(source))) > 5
    details = assert_equal(source, found, truth_of(source))
    assert set(details["box"]["classes"]) == set(CLASSES) - {"emu"}


def test_more_than_a_hundred_detections_of_a_class():
    source = ToySource(3)
    rng = np.random.default_rng(0)
    objects = source.objects(0)
    boxes = np.repeat(objects.boxes, 130, axis=0)
    boxes[:, 2:] += rng.uniform(0, 30, boxes[:, 2:].shape).astype(np.float32)
    scores = np.sort(rng.random(len(boxes)))[::-1].astype(np.float32)
    order = rng.permutation(len(boxes))
    many = Detections(boxes[order], scores, np.repeat(objects.labels, 130)[order])
    found = [many, *detect(source, masks=False)[1:]]
    assert_equal(source, found, truth_of(source), kinds=("box",))


def test_boxes_without_masks():
    source = ToySource(has_masks=False)
    assert_equal(source, detect(source, masks=False), truth_of(source), kinds=("box",))
    _, details = coco_metrics(source, detect(source))  # masks that nothing can be compared with
    assert list(details) == ["box"]
    _, details = coco_metrics(ToySource(), detect(ToySource(), masks=False))
    assert list(details) == ["box"]


@pytest.mark.skipif(not (SHARED / "coco_tiny").is_dir(), reason="no such data beside the project")
def test_photos():
    """The truth of pycocotools is the annotation file itself, with its polygons."""
    _, source = open_annotated(f"coco:{SHARED / 'coco_tiny'}")
    source = AnnotatedSubset(source, np.arange(0, len(source), 3))
    truth = json.loads((SHARED / "coco_tiny" / "annotations" / "instances_val2017.json").read_text())
    kept = {source.image_id(i) for i in range(len(source))}
    truth["images"] = [image for image in truth["images"] if image["id"] in kept]
    truth["annotations"] = [each for each in truth["annotations"] if each["image_id"] in kept]
    found = [shifted(source, index) for index in range(len(source))]
    assert_equal(source, found, truth)


def shifted(source, index):
    """The objects of an image with their masks moved, some of them of the next class."""
    rng, objects, masks = np.random.default_rng(index), source.objects(index), source.masks(index)
    moves = rng.integers(-3, 4, (len(objects), 4))
    moved = [np.roll(mask, move[:2], (0, 1)) for mask, move in zip(masks, moves, strict=True)]
    labels = (objects.labels + (rng.random(len(objects)) < 0.1)) % len(source.object_classes)
    scores = np.sort(rng.random(len(objects)))[::-1].astype(np.float32)
    return Detections((objects.boxes + moves).astype(np.float32), scores, labels, encode_masks(np.array(moved)))


def test_everything_found():
    source = ToySource(20)
    for index in range(len(source)):  # a crowd may be found or not
        source.objects(index).crowd[:] = False
    found = [
        Detections(each.boxes, np.ones(len(each), np.float32), each.labels, encode_masks(source.masks(index)))
        for index, each in enumerate(source.all)
    ]
    metrics, details = coco_metrics(source, found)
    assert [metric.value for metric in metrics] == [1.0] * 6
    assert {numbers["AP75"] for numbers in details["mask"]["classes"].values()} == {1.0}
    assert [metric.name for metric in metrics[2:4]] == ["box AP75", "mask AP"]
    assert str(metrics[0]) == "box AP 100.0 %"


def test_nothing_found():
    metrics, details = coco_metrics(ToySource(10), [NONE] * 10)
    assert [metric.value for metric in metrics] == [0.0] * 6
    assert details["mask"]["AR 100"] == 0
    assert all(numbers["AP"] == 0 for numbers in details["box"]["classes"].values())


def test_no_objects():
    source = ToySource(5)
    empty = AnnotatedSubset(source, np.array([4]))  # every fifth image has none
    for found in (NONE, detect(source)[4]):
        metrics, details = coco_metrics(empty, [found])
        assert [metric.value for metric in metrics] == [0.0] * 6
        assert details["box"]["AP"] is None
        assert details["box"]["classes"] == {}


def test_one_set_of_detections_per_image():
    with pytest.raises(ValueError, match="5 images and 4 sets of detections"):
        coco_metrics(ToySource(5), [NONE] * 4)


def test_nothing_is_printed(capfd, caplog):
    caplog.set_level("INFO")
    coco_metrics(ToySource(5), detect(ToySource(5)))
    captured = capfd.readouterr()
    assert (captured.out, captured.err, caplog.text) == ("", "", "")


def test_scenes():
    _, source = open_annotated("scenes:1,6")
    boxes = [source.objects(i).boxes for i in range(6)]
    found = [
        Detections(boxes[i], np.ones(1, np.float32), source.objects(i).labels, encode_masks(source.masks(i)))
        for i in range(6)
    ]
    found[2] = NONE
    metrics, details = coco_metrics(source, found)
    lost = source.object_classes[source.label(2)]
    assert 0 < metrics[0].value < 1
    assert details["mask"]["classes"][lost]["AP50"] < 1
    assert all(numbers["AP"] == 1 for name, numbers in details["box"]["classes"].items() if name != lost)


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # of pycocotools, in NumPy 2
def test_results_load_in_pycocotools():
    source = ToySource(8)
    found = detect(source)
    with contextlib.redirect_stdout(io.StringIO()):
        data = COCO()
        data.dataset = truth_of(source)
        data.createIndex()
        loaded = data.loadRes(results_of(source, found))
    for index, each in enumerate(found):
        entries = loaded.loadAnns(loaded.getAnnIds(imgIds=[source.image_id(index)]))
        assert [entry["category_id"] for entry in entries] == [CATEGORIES[label] for label in each.labels]
        assert [entry["score"] for entry in entries] == each.scores.tolist()
        corners = [[x, y, x + width, y + height] for x, y, width, height in (entry["bbox"] for entry in entries)]
        np.testing.assert_allclose(np.reshape(corners, (-1, 4)), each.boxes, atol=1e-4)
        for entry, mask in zip(entries, decode_masks(each.masks), strict=True):
            assert np.array_equal(loaded.annToMask(entry), mask)
