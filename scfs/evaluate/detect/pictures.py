from collections.abc import Sequence
from pathlib import Path

import numpy as np

from scfs.data.sources import AnnotatedSource, Source
from scfs.evaluate.detect.detections import Detections, decode_masks
from scfs.evaluate.detect.scoring import Found
from scfs.visualize.detections import MIN_SCORE, DrawnObjects, save_detections


def draw_scored(path: Path, source: AnnotatedSource, found: Sequence[Detections], count: int) -> None:
    """Draw the first images of a source, ground truth beside predictions."""
    shown = range(min(count, len(source)))
    save_detections(
        path,
        [source.image(index) for index in shown],
        [_truth(source, index) for index in shown],
        [_drawn(found[index]) for index in shown],
        source.object_classes,
    )


def draw_found(path: Path, source: Source, found: Found, classes: Sequence[str], count: int) -> None:
    """Draw what was found in the first images of a source."""
    images = [source.image(index) for index in found.indices[:count]]
    save_detections(path, images, None, [_drawn(each) for each in found.detections[:count]], classes)


def _truth(source: AnnotatedSource, index: int) -> DrawnObjects:
    objects = source.objects(index)
    return DrawnObjects(objects.boxes, objects.labels, masks=source.masks(index))


def _drawn(found: Detections) -> DrawnObjects:
    """The objects that are likely enough to be drawn: the masks of all others would take gigabytes."""
    kept = np.flatnonzero(found.scores >= MIN_SCORE)
    masks = decode_masks([found.masks[i] for i in kept]) if found.masks else None
    return DrawnObjects(found.boxes[kept], found.labels[kept], found.scores[kept], masks)
