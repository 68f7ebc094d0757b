import time
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from scfs import distributed
from scfs.backbones import Backbone
from scfs.config import DataSettings
from scfs.data.annotations import AnnotatedSubset, with_objects
from scfs.data.same_images import refuse_different_images
from scfs.data.sources import AnnotatedSource, open_annotated
from scfs.data.unreadable import refuse_unreadable, show_left_out
from scfs.evaluate.detect.coco_metrics import coco_metrics
from scfs.evaluate.detect.detector_file import TrainedDetector, save_detector
from scfs.evaluate.detect.models import DetectorSpec, build_detector
from scfs.evaluate.detect.pictures import draw_scored
from scfs.evaluate.detect.plan import resolve_spec
from scfs.evaluate.detect.scoring import Found, find_objects
from scfs.evaluate.detect.settings import Detect
from scfs.evaluate.detect.training import plan_training, train_detector
from scfs.evaluate.detect.voc_metrics import voc_metrics
from scfs.evaluate.own_data import BOXES, choose_data
from scfs.evaluate.tables import metrics_table
from scfs.evaluate.target import EvalTarget, load_evaluated, show_report
from scfs.evaluate.training_folder import open_folder
from scfs.extras import check_extra
from scfs.runs.files import digest_of
from scfs.runs.metric import Metric
from scfs.runs.results import record, results_folder
from scfs.training.cpu import cpu_setup
from scfs.training.resumable import TrainingFiles

PICTURE = "detections.png"


def detect(target: str, settings: Detect, console: Console) -> list[Metric]:
    """Score a backbone by the detector that is trained from it, and save the detector: the `scfs detect` command."""
    check_extra("detect", "scfs detect")
    start, device = time.perf_counter(), distributed.choose_device(settings.device)
    with distributed.process_group(device), cpu_setup(device):
        recorded_in = results_folder(target, console) if settings.start == "weights" else None
        data = choose_data(target, settings.data, console, needs=BOXES)
        settings = settings.model_copy(update={"data": data.source})
        train, val = _open_data(data, console)
        backbone = _open_backbone(target, settings, console)
        spec = resolve_spec(settings, train, backbone)
        trained_on = with_objects(train)
        plan_training(settings, len(trained_on))  # so that bad input is refused now
        eval_target = EvalTarget(target, backbone, spec.sizes[-1], train, val, device)
        work = _work(eval_target, spec, settings)
        folder = Path(distributed.on_rank_zero(lambda: str(open_folder("detect", target, settings.out, work))))
        console.print(f"{_title(spec, settings)} of {eval_target}\nfolder   {folder}")
        files = TrainingFiles(folder / "state.pt", folder, work)
        torch.manual_seed(settings.seed)
        detector = train_detector(
            build_detector(backbone, spec), spec, trained_on, settings, device=device, files=files, console=console
        )
        found = find_objects(detector, val, workers=settings.workers, device=device, console=console)
        scored = _readable(val, found, console)
        score = partial(voc_metrics if _is_voc(settings) else coco_metrics, scored, found.detections)
        metrics, details = distributed.on_rank_zero(score, takes_long=True)

        def save() -> None:
            console.print(metrics_table(_rows(metrics, spec)))
            variant = f"{spec.name}, from scratch" if settings.start == "scratch" else spec.name
            result = eval_target.result("detect", metrics, work, start=start, variant=variant, details=details)
            for place in (recorded_in, folder):
                record(place, result, console)
            trained = TrainedDetector(detector, spec, train.object_classes, train.category_ids)
            console.print(f"detector {save_detector(folder, trained, backbone)}")
            if settings.show:
                draw_scored(folder / PICTURE, scored, found.detections, settings.show)
                console.print(f"picture  {folder / PICTURE}")

        distributed.on_rank_zero(save)
        files.remove_state()
    return metrics


def _open_data(data: DataSettings, console: Console) -> tuple[AnnotatedSource, AnnotatedSource]:
    train, val = open_annotated(data.source, max_pixels=data.max_pixels)
    refuse_different_images(train, val)
    for note in dict.fromkeys((*train.notes, *val.notes)):
        console.print(note, style="yellow")
    return train, val


def _open_backbone(target: str, settings: Detect, console: Console) -> Backbone:
    """The backbone to start from; prints the load report of foreign weights."""
    loaded = load_evaluated(target, settings)
    if settings.start == "scratch":
        torch.manual_seed(settings.seed)
        return Backbone(loaded.backbone.name, loaded.backbone.layers)
    show_report(loaded, console)
    return loaded.backbone


def _work(eval_target: EvalTarget, spec: DetectorSpec, settings: Detect) -> dict[str, Any]:
    """The settings and what they resolved to. If equal, the work is the same."""
    train: AnnotatedSource = eval_target.train  # type: ignore[assignment]
    resolved = asdict(spec) | {"detector": spec.name, "sizes": list(spec.sizes)}
    return (
        eval_target.resolved(settings)
        | {name: value for name, value in resolved.items() if name != "name"}
        | {"class_names": digest_of(train.object_classes)}
    )


def _title(spec: DetectorSpec, settings: Detect) -> str:
    from_scratch = " from scratch" if settings.start == "scratch" else ""
    return f"Training {spec.name} for {spec.num_classes} classes{from_scratch}"


def _readable(val: AnnotatedSource, found: Found, console: Console) -> AnnotatedSource:
    """The images that were scored; too many unreadable ones are an error."""
    refuse_unreadable(found.unreadable, len(val))
    show_left_out(found.unreadable, console)
    return AnnotatedSubset(val, found.indices) if found.unreadable else val


def _rows(metrics: list[Metric], spec: DetectorSpec) -> dict[str, list[Metric]]:
    """Rows of a table: COCO's metrics of boxes and of masks, or VOC's."""
    kinds = {kind: [each for each in metrics if each.name.startswith(f"{kind} ")] for kind in ("box", "mask")}
    return {kind: each for kind, each in kinds.items() if each} or {spec.name: metrics}


def _is_voc(settings: Detect) -> bool:
    return settings.metric == "voc" or (settings.metric == "auto" and settings.data.startswith("voc:"))
