"""Images with random objects, and detections as a mediocre detector would make them."""

import numpy as np
from PIL import Image

from scfs.data.annotations import Objects
from scfs.evaluate.detect.detections import Detections, encode_masks

CLASSES = ("cat", "dog", "owl", "yak", "emu")  # no object is an emu
CATEGORIES = (7, 2, 40, 3, 11)


class ToySource:
    """Objects with elliptical masks on images of several sizes; every fifth image has none."""

    classes = ()
    object_classes, category_ids, notes = CLASSES, CATEGORIES, ()

    def __init__(self, size=40, *, seed=0, has_masks=True, max_side=300):
        rng = np.random.default_rng(seed)
        self.has_masks = has_masks
        self.sizes = rng.integers(max_side // 2, max_side, (size, 2)).tolist()
        counts = [0 if i % 5 == 4 else int(rng.integers(1, 8)) for i in range(size)]
        self.starts = np.cumsum([0, *counts])
        self.all = [self._random(rng, i, count) for i, count in enumerate(counts)]

    def _random(self, rng, index, count):
        width, height = self.sizes[index]
        low = rng.uniform(0, 0.7, (count, 2)) * (width, height)
        high = np.minimum(low + rng.uniform(6, 150, (count, 2)), (width, height))
        boxes = np.concatenate([low, high], axis=1).round(2).astype(np.float32)
        labels = rng.integers(0, len(CLASSES) - 1, count)
        masks = ellipses(boxes, width, height)
        crowd, difficult = rng.random(count) < 0.15, rng.random(count) < 0.2
        ids = np.arange(self.starts[index], self.starts[index] + count)  # from 0, which COCO takes for none
        return Objects(boxes, labels, crowd, difficult, masks.sum(axis=(1, 2)).astype(np.float32), ids)

    def __len__(self):
        return len(self.sizes)

    def image(self, index):
        return Image.new("RGB", self.image_size(index))

    def label(self, index):
        raise NotImplementedError

    def name(self, index):
        return str(index)

    def objects(self, index):
        return self.all[index]

    def masks(self, index):
        return ellipses(self.all[index].boxes, *self.sizes[index]) if self.has_masks else None

    def image_size(self, index):
        return tuple(self.sizes[index])

    def image_id(self, index):
        return 50 - 3 * index  # neither consecutive nor rising, some below zero


def ellipses(boxes, width, height):
    """The masks (N, H, W) of the ellipses in boxes."""
    x, y = np.arange(width) + 0.5, np.arange(height)[:, None] + 0.5
    masks = [((2 * x - a - c) / (c - a)) ** 2 + ((2 * y - b - d) / (d - b)) ** 2 <= 1 for a, b, c, d in boxes.tolist()]
    return np.array(masks, np.bool_).reshape(len(boxes), height, width)


def detect(source, *, seed=1, masks=True):
    """Shifted copies of the objects, several of each, some of the wrong class, and boxes where nothing is.

    No two scores are the same, also after rounding to 3 decimals, as long as there are fewer than 1,000 detections.
    """
    rng = np.random.default_rng(seed)
    boxes, labels = zip(*(_jitter(rng, source, index) for index in range(len(source))), strict=True)
    total = sum(map(len, boxes))
    scores = np.split(rng.permutation(max(total, 999))[:total] / max(total, 999), np.cumsum([*map(len, boxes)])[:-1])
    found = []
    for index in range(len(source)):
        order = np.argsort(-scores[index])
        kept = boxes[index][order]
        rle = encode_masks(ellipses(kept, *source.image_size(index))) if masks else None
        found.append(Detections(kept, scores[index][order].astype(np.float32), labels[index][order], rle))
    return found


def _jitter(rng, source, index):
    objects, (width, height) = source.objects(index), source.image_size(index)
    copies = np.repeat(np.arange(len(objects)), rng.integers(0, 4, len(objects)))
    sides = np.tile(objects.boxes[copies, 2:] - objects.boxes[copies, :2], 2)
    spread = rng.choice([0.01, 0.05, 0.2], (len(copies), 1))
    near = objects.boxes[copies] + sides * rng.normal(0, 1, sides.shape) * spread
    low = rng.uniform(0, 0.8, (2, 2)) * (width, height)
    boxes = np.concatenate([near, np.concatenate([low, low + rng.uniform(4, 60, (2, 2))], axis=1)])
    boxes = boxes.clip(0, (width, height, width, height))
    labels = np.concatenate([objects.labels[copies], rng.integers(0, len(source.object_classes), 2)])
    wrong = rng.random(len(labels)) < 0.1
    labels[wrong] = rng.integers(0, len(source.object_classes), wrong.sum())
    kept = (boxes[:, 2:] - boxes[:, :2] >= 2).all(axis=1)
    return boxes[kept].astype(np.float32), labels[kept]
