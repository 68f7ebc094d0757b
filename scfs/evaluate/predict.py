import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from scfs.data.paths import readable
from scfs.data.skipped import show_skipped, skipped_by_suffix
from scfs.data.sources import open_all
from scfs.data.unreadable import show_left_out
from scfs.distributed import choose_device, gather_rows, is_rank_zero, process_group
from scfs.errors import UserError
from scfs.evaluate.detect.predicting import predict_objects
from scfs.evaluate.features import extract_readable
from scfs.evaluate.linear.features import ProbeFeatures
from scfs.evaluate.own_data import own_data
from scfs.evaluate.settings import Predict
from scfs.evaluate.trained_classifier import find_classifier
from scfs.evaluate.training_folder import task_settings
from scfs.runs.files import check_new, write_new
from scfs.runs.results import run_of
from scfs.training.cpu import cpu_setup

SHOWN = 20
HEAD = ("image", "class", "probability")


class Prediction(NamedTuple):
    """An image, its most probable class and the class's probability."""

    name: str
    label: str
    probability: float

    def __repr__(self) -> str:
        return f"Prediction({self.name!r}, {self.label!r}, {self.probability:.3f})"

    def row(self) -> tuple[str, str, str]:
        """As text, for a file or the terminal."""
        return readable(self.name), readable(self.label), f"{self.probability:.3f}"


def predict(run: str, images: str, out: Path | None, settings: Predict, console: Console) -> list[Prediction]:
    """Predict the class of each image with a run's newest trained classifier: the `scfs predict` command.

    The folder of a detector finds objects instead, which are written to OUT; then the list is empty.
    """
    folder = run_of(run)
    if folder is not None and task_settings(folder, "detect"):
        predict_objects(folder, images, out, settings, console)
        return []
    if out is not None:
        _check_out(out)
    device = choose_device(settings.device)
    with process_group(device), cpu_setup(device):
        classifier = find_classifier(run, network=settings.network)
        source, probe = open_all(images, max_pixels=own_data(run).max_pixels), classifier.probe
        found = extract_readable(
            ProbeFeatures(classifier.backbone.to(device), probe.blocks).eval(),
            source,
            size=probe.size,
            batch_size=settings.batch_size,
            workers=settings.workers,
            device=device,
            console=console,
        )
        own = (found.indices, *reversed(probe(found.labelled.features.cpu()).max(dim=1)))
        indices, labels, probabilities = (gather_rows(column).tolist() for column in own)
    predictions = [
        Prediction(source.name(index), probe.classes[label], probability)
        for index, label, probability in sorted(zip(indices, labels, probabilities, strict=True))
    ]
    if not is_rank_zero():
        return predictions
    if out is not None:  # before anything is printed, since the reader of the output may close it, as `head` does
        _write(out, predictions)
    _print(console, str(classifier))
    _show(predictions, out, console)
    show_left_out(found.unreadable, console)
    show_skipped(skipped_by_suffix(images, all_splits=True), console)
    return predictions


def _check_out(out: Path) -> None:
    if out.suffix.lower() != ".csv":
        raise UserError(f"A classifier's predictions are written as CSV; name the file .csv, not {out}.")
    check_new(out)


def _write(out: Path, predictions: Sequence[Prediction]) -> None:
    text = io.StringIO()
    csv.writer(text).writerows([HEAD, *(each.row() for each in predictions)])
    write_new(out, lambda file: file.write(text.getvalue().encode()))


def _show(predictions: Sequence[Prediction], out: Path | None, console: Console) -> None:
    for name, label, probability in (each.row() for each in predictions[:SHOWN]):
        _print(console, f"{label}  {probability}  {name}")
    if out is not None:
        _print(console, f"{len(predictions)} images in {out}")
    elif len(predictions) > SHOWN:
        _print(console, f"... and {len(predictions) - SHOWN} more; give OUT.csv to write them all.")


def _print(console: Console, line: str) -> None:
    console.print(line)
