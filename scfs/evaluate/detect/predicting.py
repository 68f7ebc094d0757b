import json
from pathlib import Path
from typing import Any

from rich.console import Console

from scfs.data.paths import readable
from scfs.data.skipped import show_skipped, skipped_by_suffix
from scfs.data.sources import Source, open_all
from scfs.data.unreadable import show_left_out
from scfs.distributed import choose_device, is_rank_zero, process_group
from scfs.errors import UserError
from scfs.evaluate.detect.detections import Detections, as_coco
from scfs.evaluate.detect.detector_file import TrainedDetector, read_detector
from scfs.evaluate.detect.pictures import draw_found
from scfs.evaluate.detect.scoring import Found, find_objects
from scfs.evaluate.own_data import own_data
from scfs.evaluate.settings import Predict
from scfs.extras import check_extra
from scfs.runs.files import check_new, write_new
from scfs.training.cpu import cpu_setup
from scfs.visualize.detections import MIN_SCORE

SHOWN = 20  # images


def predict_objects(folder: Path, images: str, out: Path | None, settings: Predict, console: Console) -> None:
    """Find the objects in images with a trained detector: `scfs predict` of a folder of `scfs detect`.

    OUT.json is written in COCO's format, with a score for every object.
    """
    if out is not None and out.suffix != ".json":
        raise UserError(f"A detector's predictions are JSON in COCO's format; name the file .json, not {out}.")
    for name in ("network", "batch_size"):
        if (given := getattr(settings, name)) != Predict.model_fields[name].default:
            raise UserError(
                f"--{name} {given} has no effect on a detector, which is a single network and takes one image at a "
                "time; omit it."
            )
    picture = None if out is None or not settings.show else out.with_suffix(".png")
    for path in (out, picture):
        if path is not None:
            check_new(path)
    device = choose_device(settings.device)
    with process_group(device), cpu_setup(device):
        trained = read_detector(folder)
        if trained.spec.has_masks:
            check_extra("detect", "A detector of masks")
        source = open_all(images, max_pixels=own_data(str(folder)).max_pixels)
        found = find_objects(
            trained.detector.to(device), source, workers=settings.workers, device=device, console=console
        )
    if not found.indices:
        raise UserError(f"None of the {len(source)} images can be read; give other images.")
    if not is_rank_zero():
        return
    if out is not None:  # before anything is printed, since the reader of the output may close it, as `head` does
        content = json.dumps(as_data_set(source, found, trained)).encode()
        write_new(out, lambda file: file.write(content))
    _show(source, found, trained, out, console)
    if picture is not None:
        draw_found(picture, source, found, trained.classes, settings.show)
        _print(console, f"picture  {picture}")
    show_left_out(found.unreadable, console)
    show_skipped(skipped_by_suffix(images, all_splits=True), console)


def as_data_set(source: Source, found: Found, trained: TrainedDetector) -> dict[str, Any]:
    """What was found, as a data set in COCO's format; images are numbered from 1."""
    images, objects = list[dict[str, Any]](), list[dict[str, Any]]()
    for number, (index, (width, height), each) in enumerate(
        zip(found.indices, found.sizes, found.detections, strict=True), start=1
    ):
        images.append({"id": number, "file_name": readable(source.name(index)), "width": width, "height": height})
        objects += as_coco(each, image_id=number, category_ids=trained.category_ids)
    categories = zip(trained.category_ids, trained.classes, strict=True)
    return {
        "images": images,
        "annotations": [{"id": number, **each} for number, each in enumerate(objects, start=1)],
        "categories": [{"id": category, "name": name} for category, name in categories],
    }


def _show(source: Source, found: Found, trained: TrainedDetector, out: Path | None, console: Console) -> None:
    for index, each in list(zip(found.indices, found.detections, strict=True))[:SHOWN]:
        _print(console, f"{readable(source.name(index))}: {_listed(each, trained.classes)}")
    if out is not None:
        _print(console, f"{len(found.indices)} images in {out}")
    elif len(found.indices) > SHOWN:
        _print(console, f"... and {len(found.indices) - SHOWN} more; give OUT.json to write them all.")


def _listed(found: Detections, classes: tuple[str, ...]) -> str:
    """The objects that are likely, by falling score."""
    likely = [
        f"{readable(classes[label])} {score:.2f}"
        for label, score in zip(found.labels.tolist(), found.scores.tolist(), strict=True)
        if score >= MIN_SCORE
    ]
    return ", ".join(likely) or f"nothing with a score of {MIN_SCORE} or more"


def _print(console: Console, line: str) -> None:
    console.print(line)
