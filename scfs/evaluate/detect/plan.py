"""What `auto` means for a detector: it follows the data and the backbone."""

import statistics

from scfs.backbones import Backbone
from scfs.data.sources import AnnotatedSource
from scfs.errors import UserError
from scfs.evaluate.detect.models import DetectorSpec
from scfs.evaluate.detect.names import DetectorName
from scfs.evaluate.detect.settings import Detect

USUAL_SIZES = tuple(range(480, 801, 32))  # detectron2's
ENLARGED = 5 / 3  # COCO's images, usually with a shorter side of 480, are scored at 800
THIN = 256  # channels of the last map of a backbone, up to which the heads are thin too
MAX_WARMUP = 1000


def resolve_spec(settings: Detect, train: AnnotatedSource, backbone: Backbone) -> DetectorSpec:
    """The detector that the settings describe, with every `auto` resolved."""
    is_thin = backbone.num_features <= THIN
    name = _name(settings, train)
    return DetectorSpec(
        name=name,
        num_classes=len(train.object_classes),
        channels=settings.channels if settings.channels != "auto" else 64 if is_thin else 256,
        sizes=settings.sizes if settings.sizes != "auto" else _sizes(train),
        max_size=settings.max_size,
        regions=settings.regions if settings.regions != "auto" else 128 if is_thin else 512,
    )


def _name(settings: Detect, train: AnnotatedSource) -> DetectorName:
    if settings.detector == "auto":
        return "mask-rcnn-fpn" if train.has_masks else "faster-rcnn-fpn"
    if settings.detector == "mask-rcnn-fpn" and not train.has_masks:
        raise UserError(f"{settings.data} has no masks to train mask-rcnn-fpn on; use faster-rcnn-fpn.")
    return settings.detector


def _sizes(train: AnnotatedSource) -> tuple[int, ...]:
    """The usual sizes; for small images, fewer pixels in the same proportions."""
    shorter = statistics.median(min(train.image_size(i)) for i in range(len(train)))
    scale = min(1.0, ENLARGED * shorter / USUAL_SIZES[-1])
    return tuple(sorted({max(32, round(scale * size / 8) * 8) for size in USUAL_SIZES}))


def resolve_warmup(settings: Detect, total_steps: int) -> int:
    """The number of steps of the warm-up."""
    return settings.warmup_steps if settings.warmup_steps != "auto" else min(MAX_WARMUP, total_steps // 10)
