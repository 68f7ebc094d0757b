import io

import numpy as np
import pytest
import torch
from rich.console import Console

from scfs.backbones import Backbone
from scfs.data.scene_source import SceneSource
from scfs.evaluate.detect.detections import decode_masks
from scfs.evaluate.detect.models import DetectorSpec, build_detector
from scfs.evaluate.detect.scoring import MASK_THRESHOLD, find_objects

pytest.importorskip("faster_coco_eval")
CPU = torch.device("cpu")


def test_masks_are_those_that_torchvision_pastes_all_at_once():
    torch.manual_seed(0)
    spec = DetectorSpec("mask-rcnn-fpn", 3, channels=16, sizes=(64,), max_size=128, regions=8)
    detector = build_detector(Backbone("resnet10_half"), spec).eval()
    torch.nn.init.normal_(detector.roi_heads.mask_predictor.mask_fcn_logits.weight, std=2)  # masks of varied shapes
    source = SceneSource("val", 2)
    found = find_objects(detector, source, workers=0, device=CPU, console=Console(file=io.StringIO()))

    detector.roi_heads._forward_hooks.clear()
    for index, ours in zip(found.indices, found.detections, strict=True):
        image = torch.from_numpy(np.array(source.image(index))).movedim(-1, 0)
        with torch.no_grad():
            [theirs] = detector([image.float() / 255])
        expected = (theirs["masks"][:, 0] > MASK_THRESHOLD).numpy()
        assert len(ours) == len(expected) > 10
        assert 0.05 < expected.mean() < 0.95
        assert np.array_equal(decode_masks(ours.masks), expected)
