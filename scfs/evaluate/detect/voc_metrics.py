"""Average precision as PASCAL VOC defines it, with the conventions of detectron2."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scfs.data.sources import AnnotatedSource
from scfs.evaluate.detect.detections import Detections
from scfs.runs.metric import Metric

# D detections and M objects in all images, P pairs of them, T IoU thresholds, K classes

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]

THRESHOLDS = np.arange(50, 100, 5) / 100
# As detectron2 computes them: the fourth is 0.30000000000000004, which a recall of 3 / 10 does not reach.
RECALLS = np.arange(0.0, 1.1, 0.1)
FROM_ONE = np.array((1, 1, 0, 0), np.float32)  # from edges to pixels that are counted from 1


class _Boxes(NamedTuple):
    """Boxes of all images."""

    keys: Integers  # (D,) or (M,) the same for boxes of the same class in the same image
    labels: Integers
    boxes: Floats  # (.., 4) x0 y0 x1 y1: VOC counts pixels from 1 and includes the last one


def voc_metrics(source: AnnotatedSource, found: Sequence[Detections]) -> tuple[list[Metric], dict[str, Any]]:
    """VOC's average precision of detections, one `Detections` per image of the source.

    AP50 is the mean over classes at an IoU above 0.5, AP75 at 0.75, AP over the thresholds 0.50, 0.55, ..., 0.95: with
    precision at 11 recalls, as in 2007, and under "(area)" with the area under the curve, as in 2010 and later. The
    second value has the numbers of every class.

    As in detectron2, boxes are rounded to 0.1 pixels and scores to 3 decimals; detections with equal scores stay in the
    order of the images, where detectron2 leaves it to the sorting algorithm. Difficult objects (and crowds) are
    neither to be found nor wrong to find.

    Classes with no other objects are left out of the means and not listed; detectron2 counts them as 0 at 11 recalls
    and gets NaN from the area if there are detections. Without any class, the metrics are 0.
    """
    if len(source) != len(found):
        raise ValueError(f"{len(source)} images and {len(found)} sets of detections")
    truth, difficult = _truth(source)
    detections = _sorted(found, num_classes=len(source.object_classes))
    overlaps, matches = _best_overlaps(detections, truth)
    counts = np.bincount(truth.labels[~difficult], minlength=len(source.object_classes))
    labels = np.flatnonzero(counts)
    ranges = np.searchsorted(detections.labels, [labels, labels + 1]).T.tolist()  # of each class's detections
    precisions = np.zeros((2, len(THRESHOLDS), len(labels)))  # at 11 recalls, area
    for i, threshold in enumerate(THRESHOLDS):
        right, wrong = _judge(overlaps > threshold, matches, difficult)
        for k, (start, stop) in enumerate(ranges):
            precisions[:, i, k] = _average_precisions(right[start:stop], wrong[start:stop], counts[labels[k]])
    names = [source.object_classes[label] for label in labels]
    classes = {name: _numbers(precisions[:, :, k : k + 1]) for k, name in enumerate(names)}
    return [Metric(name, value) for name, value in _numbers(precisions).items()], {"classes": classes}


def _numbers(precisions: Floats) -> dict[str, float]:
    """Means over classes of average precisions (2, T, K)."""
    numbers = {}
    for suffix, each in zip(("", " (area)"), precisions, strict=True):
        for name, chosen in (("AP", each), ("AP50", each[0]), ("AP75", each[5])):
            numbers[name + suffix] = float(chosen.mean()) if chosen.size else 0.0
    return numbers


def _truth(source: AnnotatedSource) -> tuple[_Boxes, Flags]:
    """All objects by key, in the order of each file, and which of them are difficult (M,)."""
    objects = [source.objects(index) for index in range(len(source))]
    images = np.repeat(np.arange(len(source)), [len(each) for each in objects])
    labels = np.concatenate([each.labels for each in objects])
    boxes = np.concatenate([each.boxes for each in objects]).astype(np.float64) + FROM_ONE
    difficult = np.concatenate([each.difficult | each.crowd for each in objects])
    keys = images * len(source.object_classes) + labels
    order = np.argsort(keys, kind="stable")
    return _Boxes(keys[order], labels[order], boxes[order]), difficult[order]


def _sorted(found: Sequence[Detections], *, num_classes: int) -> _Boxes:
    """All detections, class by class and by falling score."""
    images = np.repeat(np.arange(len(found)), [len(each) for each in found])
    labels = np.concatenate([each.labels for each in found])
    # Exactly the numbers that detectron2 writes and reads: it adds in float32; float64 rounds float32 exactly.
    boxes: Floats = (np.concatenate([each.boxes for each in found]) + FROM_ONE).astype(np.float64).round(1)
    scores: Floats = np.concatenate([each.scores for each in found]).astype(np.float64).round(3)
    order = np.lexsort((-scores, labels))
    return _Boxes((images * num_classes + labels)[order], labels[order], boxes[order])


def _best_overlaps(detections: _Boxes, truth: _Boxes) -> tuple[Floats, Integers]:
    """For each detection, the highest IoU with an object of its class in its image, and that object.

    Of objects with the same IoU, the first. Without any object, the IoU is -1 and the object is -1.
    """
    best, matches = np.full(len(detections.keys), -1.0), np.full(len(detections.keys), -1)
    first, last = (np.searchsorted(truth.keys, detections.keys, side=side) for side in ("left", "right"))
    counts = last - first
    rows = np.repeat(np.arange(len(counts)), counts)  # (P,) the detection of each pair
    starts = np.cumsum(counts) - counts  # (D,) the first pair of each detection
    objects = np.arange(len(rows)) - starts[rows] + first[rows]  # (P,)
    if len(rows):
        overlaps = _overlaps(detections.boxes[rows], truth.boxes[objects])
        paired = counts > 0
        best[paired] = np.maximum.reduceat(overlaps, starts[paired])
        winners = np.flatnonzero(overlaps == best[rows])[::-1]
        matches[rows[winners]] = objects[winners]  # from the last pair to the first, which remains
    return best, matches


def _overlaps(first: Floats, second: Floats) -> Floats:
    """The IoU of each pair of boxes (P, 4), whose last pixels are included."""
    low, high = np.maximum(first[:, :2], second[:, :2]), np.minimum(first[:, 2:], second[:, 2:])
    intersections = (high - low + 1).clip(min=0).prod(axis=1)
    areas = [(boxes[:, 2:] - boxes[:, :2] + 1).prod(axis=1) for boxes in (first, second)]
    return intersections / (areas[0] + areas[1] - intersections)


def _judge(hits: Flags, matches: Integers, difficult: Flags) -> tuple[Flags, Flags]:
    """Which detections are right and which wrong (D,); neither, if they hit a difficult object.

    The detection with the highest score of those that hit an object is right, and all others are wrong.
    """
    rows = np.flatnonzero(hits)
    ignored, right = np.zeros_like(hits), np.zeros_like(hits)
    ignored[rows] = difficult[matches[rows]]
    rows = rows[~ignored[rows]]
    _, firsts = np.unique(matches[rows], return_index=True)
    right[rows[firsts]] = True
    return right, ~right & ~ignored


def _average_precisions(right: Flags, wrong: Flags, num_objects: int) -> tuple[float, float]:
    """The average precision of one class at 11 recalls, and the area under its curve."""
    num_right, num_wrong = np.cumsum(right), np.cumsum(wrong)
    recall = num_right / num_objects
    precision = num_right / np.maximum(num_right + num_wrong, 1)
    envelope = np.maximum.accumulate(precision[::-1])[::-1]  # the best precision at this or a higher recall
    reached = np.searchsorted(recall, RECALLS)
    at_recalls = np.append(envelope, 0.0)[reached]
    return float(at_recalls.mean()), float((np.diff(recall, prepend=0.0) * envelope).sum())
