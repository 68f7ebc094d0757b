"""Detectors composed of torchvision's parts, with batch norms in every new layer as in MoCo's protocol."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torchvision.models.detection import FasterRCNN, MaskRCNN
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.faster_rcnn import FastRCNNConvFCHead, FastRCNNPredictor
from torchvision.models.detection.mask_rcnn import MaskRCNNHeads, MaskRCNNPredictor
from torchvision.ops import MultiScaleRoIAlign

from scfs.backbones import Backbone
from scfs.evaluate.detect.bodies import PADDED_TO, body_state, pyramid_body, split_c4
from scfs.evaluate.detect.names import DetectorName
from scfs.preprocessing import IMAGENET_MEAN, IMAGENET_STD

ANCHOR_SIDES, ANCHOR_RATIOS = (32, 64, 128, 256, 512), (0.5, 1.0, 2.0)
PYRAMID = ["0", "1", "2", "3"]  # maps that regions are pooled from
REGION_MASKS = "region_masks"  # (N, 1, M, M) probabilities in each box
BOX_SIDE, MASK_SIDE, C4_SIDE = 7, 14, 14  # of the map of a region


@dataclass(frozen=True)
class DetectorSpec:
    """All that is needed, besides a backbone, to build a detector."""

    name: DetectorName
    num_classes: int  # without the background
    channels: int  # of the pyramid and of the heads on it
    sizes: tuple[int, ...]  # shorter sides of training images; the last is also that of scored ones
    max_size: int  # of the longer side
    regions: int  # sampled per image in training

    @property
    def has_masks(self) -> bool:
        """Whether it finds masks besides boxes."""
        return self.name == "mask-rcnn-fpn"


def build_detector(backbone: Backbone, spec: DetectorSpec) -> FasterRCNN:
    """A detector with a copy of the backbone; its other weights are random.

    In training mode it takes images (3, H, W), floats from 0 to 1, and targets, and returns losses by name; in
    evaluation mode it returns boxes, labels (0 is the background), scores and, under `REGION_MASKS`, masks of boxes.
    """
    build = _c4 if spec.name == "faster-rcnn-c4" else _pyramid
    options: dict[str, Any] = {
        "min_size": spec.sizes,
        "max_size": spec.max_size,
        "image_mean": list(IMAGENET_MEAN),
        "image_std": list(IMAGENET_STD),
        "size_divisible": PADDED_TO,
        "box_batch_size_per_image": spec.regions,
    }
    detector = build(backbone, spec, options)
    for module in (detector.rpn.head, detector.roi_heads.box_predictor, detector.roi_heads.mask_predictor):
        if module is not None:
            module.register_forward_hook(_as_float32)
    detector.roi_heads.register_forward_hook(_keep_region_masks)
    return detector


def _c4(backbone: Backbone, spec: DetectorSpec, options: dict[str, Any]) -> FasterRCNN:
    body, head = split_c4(backbone)
    return FasterRCNN(
        body,
        **options,
        rpn_anchor_generator=AnchorGenerator((ANCHOR_SIDES,), (ANCHOR_RATIOS,)),
        rpn_pre_nms_top_n_train=12000,  # these are detectron2's numbers
        rpn_pre_nms_top_n_test=6000,
        box_roi_pool=MultiScaleRoIAlign(["0"], C4_SIDE, sampling_ratio=0),
        box_head=head,
        box_predictor=FastRCNNPredictor(head.out_channels, 1 + spec.num_classes),
    )


def _pyramid(backbone: Backbone, spec: DetectorSpec, options: dict[str, Any]) -> FasterRCNN:
    channels, num_labels, features = spec.channels, 1 + spec.num_classes, 4 * spec.channels
    options |= {
        "backbone": pyramid_body(backbone, channels),
        "rpn_anchor_generator": AnchorGenerator(tuple((side,) for side in ANCHOR_SIDES), 5 * (ANCHOR_RATIOS,)),
        "rpn_post_nms_top_n_train": 1000,  # detectron2's
        "box_roi_pool": MultiScaleRoIAlign(PYRAMID, BOX_SIDE, sampling_ratio=2),
        "box_head": FastRCNNConvFCHead(
            (channels, BOX_SIDE, BOX_SIDE), 4 * [channels], [features], norm_layer=nn.BatchNorm2d
        ),
        "box_predictor": FastRCNNPredictor(features, num_labels),
    }
    if not spec.has_masks:
        return FasterRCNN(**options)
    return MaskRCNN(
        **options,
        mask_roi_pool=MultiScaleRoIAlign(PYRAMID, MASK_SIDE, sampling_ratio=2),
        mask_head=MaskRCNNHeads(channels, 4 * [channels], 1, norm_layer=nn.BatchNorm2d),
        mask_predictor=MaskRCNNPredictor(channels, channels, num_labels),
    )


def _as_float32(module: nn.Module, args: Any, output: Any) -> Any:
    """A hook: what boxes and losses are computed from is float32, also under autocast."""
    if isinstance(output, Tensor):
        return output.float()
    return tuple(_as_float32(module, args, each) for each in output)


def _keep_region_masks(_: nn.Module, __: Any, output: Any) -> Any:
    """A hook: torchvision would paste all masks of an image at once, 5 GB of them for 100 objects of 12 megapixels."""
    detections, losses = output
    for each in detections:
        if "masks" in each:
            each[REGION_MASKS] = each.pop("masks")
    return detections, losses


def backbone_state(detector: FasterRCNN) -> dict[str, Tensor]:
    """The weights of the backbone inside a detector, under timm's names."""
    return body_state(detector.backbone, detector.roi_heads.box_head)
