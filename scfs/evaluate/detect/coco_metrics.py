"""Average precision as COCO defines it, by faster-coco-eval, from arrays instead of files."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scfs.data.annotations import Objects
from scfs.data.sources import AnnotatedSource
from scfs.evaluate.detect.detections import Detections, Rle, coco_boxes, encode_masks
from scfs.runs.metric import Metric

Entries = list[dict[str, Any]]  # annotations or results in COCO's format

KINDS = {"box": "bbox", "mask": "segm"}  # our word and COCO's
REPORTED = ("AP", "AP50", "AP75")
STATS = (  # in COCO's order; AR n is the recall of the n detections with the highest scores in each image
    *REPORTED,
    *("AP small", "AP medium", "AP large"),
    *("AR 1", "AR 10", "AR 100"),
    *("AR small", "AR medium", "AR large"),
)


def coco_metrics(source: AnnotatedSource, found: Sequence[Detections]) -> tuple[list[Metric], dict[str, Any]]:
    """COCO's average precision of detections, one `Detections` per image of the source.

    AP of boxes and, if both the source and the detections have masks, of masks. The second value has all twelve
    numbers of COCO for each of them, and those of every class. Classes without objects count in no mean and are not
    listed; a number that no object counts in is None there, and 0 as a metric. Objects are small, medium or large by
    the area of their masks; detections, of their boxes for box AP and of their masks for mask AP. Difficult objects
    count, as COCO has none.
    """
    if len(source) != len(found):
        raise ValueError(f"{len(source)} images and {len(found)} sets of detections")
    with_masks = source.has_masks and all(each.masks is not None for each in found)
    truth, results = _truth(source, with_masks=with_masks), _results(found, with_masks=with_masks)
    metrics, details = list[Metric](), dict[str, Any]()
    for kind in KINDS if with_masks else ("box",):
        if kind == "mask":
            _use_mask_areas(results)
        details[kind] = _evaluate(truth, results, kind)
        metrics += [Metric(f"{kind} {name}", details[kind][name] or 0.0) for name in REPORTED]
    return metrics, details


def _truth(source: AnnotatedSource, *, with_masks: bool) -> dict[str, Any]:
    """The objects of a source as a data set in COCO's format.

    Images, classes and objects are numbered anew: ids below zero are not allowed, and an object's must not be zero.
    """
    images, entries = list[dict[str, Any]](), Entries()
    for index in range(len(source)):
        width, height = source.image_size(index)
        images.append({"id": index, "width": width, "height": height})
        entries += _objects(source, index, with_masks=with_masks)
    _number(entries)
    categories = [{"id": label, "name": name} for label, name in enumerate(source.object_classes)]
    return {"images": images, "annotations": entries, "categories": categories}


def _objects(source: AnnotatedSource, index: int, *, with_masks: bool) -> Entries:
    objects = source.objects(index)
    entries = _boxes(index, objects)
    for entry, area, crowd in zip(entries, objects.areas.tolist(), objects.crowd.tolist(), strict=True):
        entry.update(area=area, iscrowd=int(crowd))
    masks = source.masks(index) if with_masks else None
    if masks is not None:
        _add_masks(entries, encode_masks(masks))
    return entries


def _results(found: Sequence[Detections], *, with_masks: bool) -> Entries:
    """Detections in COCO's format, with the areas of their boxes."""
    results = Entries()
    for index, each in enumerate(found):
        entries = _boxes(index, each)
        for entry, score in zip(entries, each.scores.tolist(), strict=True):
            _, _, width, height = entry["bbox"]
            entry.update(score=score, area=width * height, iscrowd=0)
        if with_masks and each.masks is not None:
            _add_masks(entries, each.masks)
        results += entries
    _number(results)
    return results


def _boxes(index: int, objects: Objects | Detections) -> Entries:
    return [
        {"image_id": index, "category_id": label, "bbox": box}
        for label, box in zip(objects.labels.tolist(), coco_boxes(objects.boxes), strict=True)
    ]


def _add_masks(entries: Entries, masks: Sequence[Rle]) -> None:
    for entry, mask in zip(entries, masks, strict=True):
        entry["segmentation"] = mask


def _number(entries: Entries) -> None:
    for number, entry in enumerate(entries, start=1):
        entry["id"] = number


def _use_mask_areas(results: Entries) -> None:
    from faster_coco_eval.core import mask as coco_masks  # needs an extra

    for entry in results:
        entry["area"] = float(coco_masks.area(entry["segmentation"]))


def _evaluate(truth: dict[str, Any], results: Entries, kind: str) -> dict[str, Any]:
    """COCO's numbers for boxes or masks, and those of each class with objects."""
    from faster_coco_eval import COCO, COCOeval_faster  # needs an extra

    detected = {**truth, "annotations": results}
    evaluation = COCOeval_faster(
        COCO(truth, print_function=_silent),
        COCO(detected, print_function=_silent),
        iouType=KINDS[kind],
        print_function=_silent,
    )
    evaluation.run()
    numbers = {name: float(value) if value > -1 else None for name, value in zip(STATS, evaluation.stats, strict=True)}
    # Of (IoU thresholds, recalls, classes, areas, numbers of detections): all areas, the most detections.
    by_class = evaluation.eval["precision"][:, :, :, 0, -1].mean(axis=1).T  # (classes, T), -1 without objects
    names = [category["name"] for category in truth["categories"]]
    classes = {name: _of_class(row) for name, row in zip(names, by_class, strict=True) if row[0] > -1}
    return {**numbers, "classes": classes}


def _of_class(precisions: NDArray[np.float64]) -> dict[str, float]:
    """AP of one class from its average precision at each IoU threshold (T,): 0.50, 0.55, ..."""
    return {"AP": float(precisions.mean()), "AP50": float(precisions[0]), "AP75": float(precisions[5])}


def _silent(*_: object) -> None:
    """Instead of printing."""
