import json

import numpy as np
import pytest
from pycocotools import mask as pycoco_masks

from scfs.evaluate.detect.detections import Detections, as_coco, decode_masks, encode_masks


def random_masks():
    rng = np.random.default_rng(0)
    masks = rng.random((6, 23, 31)) < rng.uniform(0, 1, (6, 1, 1))
    masks[0], masks[1] = False, True
    masks[2, 5:, :] = False
    return masks


@pytest.mark.parametrize("order", ["C", "F"])
def test_masks_are_encoded_as_in_pycocotools(order):
    masks = random_masks()
    encoded = encode_masks(np.asarray(masks, order=order))
    assert list(encoded) == pycoco_masks.encode(np.asfortranarray(masks.transpose(1, 2, 0), np.uint8))
    assert np.array_equal(decode_masks(encoded), masks)
    assert decode_masks(encoded).dtype == np.bool_
    as_text = [{**rle, "counts": rle["counts"].decode()} for rle in encoded]
    assert np.array_equal(decode_masks(as_text), masks)


def test_no_masks():
    assert encode_masks(np.zeros((0, 4, 5), np.bool_)) == ()
    assert decode_masks(()).shape == (0, 0, 0)


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # of pycocotools, in NumPy 2
def test_result_entries():
    ids = {"image_id": 41, "category_ids": (7, 20, 40)}
    mask = np.zeros((1, 20, 30), np.bool_)
    mask[0, 2:4, 1:6] = True
    box, score = np.array([[1, 2, 6, 4.5]], np.float32), np.array([0.25], np.float32)
    found = Detections(box, score, np.array([2]), encode_masks(mask))
    (entry,) = json.loads(json.dumps(as_coco(found, **ids)))
    segmentation = entry.pop("segmentation")
    assert entry == {"image_id": 41, "category_id": 40, "bbox": [1, 2, 5, 2.5], "score": 0.25}
    assert np.array_equal(pycoco_masks.decode(segmentation), mask[0])
    assert "segmentation" not in as_coco(Detections(box, score, np.array([2])), **ids)[0]
