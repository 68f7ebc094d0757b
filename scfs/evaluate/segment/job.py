import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from rich.console import Console

from scfs import distributed
from scfs.data.loader import num_workers
from scfs.data.same_images import refuse_different_images
from scfs.data.segmentation import read_segmented
from scfs.data.sources import SegmentedSource, open_segmented
from scfs.evaluate.own_data import LABEL_MAPS, choose_data
from scfs.evaluate.segment.fitting import Fitting
from scfs.evaluate.segment.iou import SegmentationScore
from scfs.evaluate.segment.maps import LayerMaps, choose_layers, choose_size
from scfs.evaluate.segment.predictions import Predicted, Predictions
from scfs.evaluate.segment.reader import MapReader
from scfs.evaluate.segment.settings import Segment
from scfs.evaluate.tables import metrics_table
from scfs.evaluate.target import EvalTarget, load_evaluated, show_report
from scfs.runs.files import check_new
from scfs.runs.layout import free_path
from scfs.runs.metric import Metric
from scfs.runs.results import record, results_folder
from scfs.training.cpu import cpu_setup
from scfs.visualize.segmentation import SegmentedPicture, save_segmentations

PICTURE = ("segment", ".png")
IN_PROTOCOL = ("k", "memory", "lr", "batch_size")  # if they are not the usual ones


def segment(target: str, settings: Segment, console: Console) -> list[Metric]:
    """Score the maps of a frozen backbone by the class of every pixel: the `scfs segment` command.

    Metrics are named "neighbours mIoU", "neighbours pixel accuracy", and the same for "linear".
    """
    start, device = time.perf_counter(), distributed.choose_device(settings.device)
    with distributed.process_group(device), cpu_setup(device):
        if settings.out:
            distributed.on_rank_zero(lambda: check_new(Path(settings.out), make_parents=True))
        folder, data = results_folder(target, console), choose_data(target, settings.data, console, needs=LABEL_MAPS)
        settings = settings.model_copy(update={"data": data.source})
        train, val = open_segmented(data.source, max_pixels=data.max_pixels)
        refuse_different_images(train, val)
        reader, eval_target = _open(target, train, val, settings, device, console)
        settings = settings.model_copy(update={"layers": tuple(reader.network.layers)})
        files = eval_target.training_files("segment", settings, folder)
        classifiers = Fitting(reader, train, settings, console).classifiers(files)
        predictions = Predictions(classifiers, num_classes=len(val.classes), shown=_shown(len(val), settings.show))
        reader.read(val, predictions.add, batch_size=settings.batch_size, console=console, title="val images")
        found = predictions.gathered()
        scores = {name: _score(name, found, settings.seed) for name in classifiers}
        rows = {name: score.metrics(name) for name, score in scores.items()}
        console.print(f"Segmentation of {settings.data} with {eval_target}")
        console.print(metrics_table(rows))
        _print_absent(scores, val.classes, console)
        metrics = [metric for row in rows.values() for metric in row]

        def save() -> None:
            result = eval_target.result(
                "segment",
                metrics,
                eval_target.resolved(settings),
                start=start,
                variant=_variant(settings),
                details={name: {"IoU": score.by_class(val.classes)} for name, score in scores.items()},
            )
            record(folder, result, console)
            _draw(Path(settings.out) if settings.out else _picture(folder), val, found, console)

        distributed.on_rank_zero(save)
        if files is not None:
            files.remove_state()
    return metrics


def _open(
    target: str,
    train: SegmentedSource,
    val: SegmentedSource,
    settings: Segment,
    device: torch.device,
    console: Console,
) -> tuple[MapReader, EvalTarget]:
    """Load the backbone, choose layers and size, and print what is used."""
    loaded = load_evaluated(target, settings)
    network = LayerMaps(loaded.backbone, choose_layers(loaded.backbone, settings.layers))
    size = choose_size(loaded, network.layers, settings.size)
    reader = MapReader(
        network.to(device).eval(), size, network.shape(size), num_workers(settings.workers, device), device
    )
    show_report(loaded, console)
    height, width = reader.shape
    about = f"maps     {' + '.join(network.layers)}: {height} x {width} positions, {network.num_channels} channels"
    for line in (*train.notes, *val.notes, f"{about}, of whole images at {size} x {size} px"):
        console.print(line)
    return reader, EvalTarget(target, loaded.backbone, size, train, val, device)


def _variant(settings: Segment) -> str:
    """Layers and unusual settings, for the protocol."""
    usual = Segment()
    unusual = [
        f"{name} {value:g}" for name in IN_PROTOCOL if (value := getattr(settings, name)) != getattr(usual, name)
    ]
    return ", ".join([" + ".join(settings.layers), *unusual])


def _print_absent(scores: Mapping[str, SegmentationScore], classes: Sequence[str], console: Console) -> None:
    """Print which classes do not count."""
    for name, score in scores.items():
        if absent := score.absent(classes):
            note = (
                f"{name}: mean of {len(classes) - len(absent)} classes; {len(absent)} are neither in val nor predicted."
            )
            console.print(note)


def _shown(num_images: int, count: int) -> list[int]:
    """The indices of the images to draw, evenly spaced."""
    return np.linspace(0, num_images - 1, min(count, num_images)).round().astype(int).tolist()


def _score(method: str, found: Mapping[int, Predicted], seed: int) -> SegmentationScore:
    return SegmentationScore.of(np.stack([each.counts[method] for each in found.values()]), seed=seed)


def _picture(folder: Path | None) -> Path:
    return free_path(*PICTURE) if folder is None else folder / "".join(PICTURE)


def _draw(path: Path, val: SegmentedSource, found: Mapping[int, Predicted], console: Console) -> None:
    """Draw the images whose predictions were kept, if there are any."""
    pictures = []
    for index, predicted in found.items():
        if predicted.label_maps:
            image, truth = read_segmented(val, index)
            pictures.append(SegmentedPicture(np.asarray(image), {"truth": truth, **predicted.label_maps}))
    if pictures:
        save_segmentations(path, pictures, val.classes)
        console.print(f"picture  {path}")
