from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from torchvision.models.detection import FasterRCNN

from scfs.backbones import Backbone
from scfs.errors import UserError
from scfs.evaluate.detect.models import DetectorSpec, backbone_state, build_detector
from scfs.runs import checkpoint, layout
from scfs.runs.backbone_record import FINE_TUNED, BackboneRecord, as_content, read_records

KEY = "detector"  # in a checkpoint


class TrainedDetector(NamedTuple):
    """A detector that `scfs detect` has trained, and the classes that it knows."""

    detector: FasterRCNN
    spec: DetectorSpec
    classes: tuple[str, ...]
    category_ids: tuple[int, ...]  # of the classes, in the data that it was trained on


def save_detector(folder: Path, trained: TrainedDetector, backbone: Backbone) -> Path:
    """Save a detector as a checkpoint that also holds its fine-tuned backbone; `backbone` is what it started from."""
    detector, spec = trained.detector.cpu(), trained.spec
    record = BackboneRecord(backbone.name, list(backbone.layers), spec.sizes[-1], backbone_state(detector))
    content = {
        "spec": asdict(spec) | {"sizes": list(spec.sizes)},
        "classes": list(trained.classes),
        "category_ids": list(trained.category_ids),
        "tensors": detector.state_dict(),
    }
    checkpoint.save(folder / layout.LAST, {**as_content({FINE_TUNED: record}), KEY: content})
    return folder / layout.LAST


def read_detector(folder: Path) -> TrainedDetector:
    """The detector in a folder of `scfs detect`."""
    path = folder / layout.LAST
    if not path.exists():
        raise UserError(f"{folder} has no detector yet ({layout.LAST}); finish its training with the same command.")
    saved = checkpoint.load(path)
    if KEY not in saved:
        raise UserError(f"{path} holds no detector; give a folder of scfs detect.")
    values = saved[KEY]
    spec = DetectorSpec(**values["spec"] | {"sizes": tuple(values["spec"]["sizes"])})
    record = read_records(saved)[FINE_TUNED]
    detector = build_detector(Backbone(record.name, record.layers), spec)
    detector.load_state_dict(values["tensors"])
    return TrainedDetector(detector, spec, tuple(values["classes"]), tuple(values["category_ids"]))
