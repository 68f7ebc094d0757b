"""The Python API. Everything here is also available as `scfs.NAME`, imported on first use.

Settings are keywords, named as on the command line; a section is a dictionary: `optim={"epochs": 5}`. A mistake
raises `scfs.UserError`. What a command would print goes to the logger `scfs`.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from scfs.config import Config
from scfs.console import LoggingConsole
from scfs.data.sources import open_all as open_images
from scfs.data.sources import open_labelled
from scfs.data.views import MultiCrop
from scfs.evaluate.detect.job import detect as detect_job
from scfs.evaluate.detect.settings import Detect
from scfs.evaluate.embed import Match
from scfs.evaluate.embed import embed as embed_job
from scfs.evaluate.finetune.job import finetune as finetune_job
from scfs.evaluate.finetune.settings import Finetune
from scfs.evaluate.knn.job import knn as knn_job
from scfs.evaluate.knn.settings import Knn
from scfs.evaluate.linear.job import linear as linear_job
from scfs.evaluate.linear.settings import Linear
from scfs.evaluate.predict import Prediction
from scfs.evaluate.predict import predict as predict_job
from scfs.evaluate.segment.job import segment as segment_job
from scfs.evaluate.segment.settings import Segment
from scfs.evaluate.settings import Embed, Export, Predict
from scfs.exporting import Exported, export_and_print
from scfs.method.search import search_attention
from scfs.pretrained import PretrainedBackbone, load_backbone, load_image
from scfs.pretraining.auto import resolve
from scfs.pretraining.job import pretrain as pretrain_job
from scfs.recipe import changes, check
from scfs.recipes.catalogue import Recipe, read_recipe, starting_point
from scfs.runs.curves import read_curves
from scfs.runs.metric import Metric
from scfs.runs.metrics_log import LogRow, listening
from scfs.view_batch import ViewBatch
from scfs.visualize.attend.job import attend_and_draw
from scfs.visualize.attend.settings import Attend
from scfs.visualize.neighbours import nearest_images
from scfs.visualize.overaug.job import overaug as overaug_job
from scfs.visualize.overaug.settings import Overaug
from scfs.visualize.report.job import report as report_job
from scfs.visualize.settings import Report

__all__ = [
    "PretrainedBackbone",
    "attend",
    "detect",
    "embed",
    "export",
    "finetune",
    "knn",
    "linear",
    "load_backbone",
    "load_image",
    "make_views",
    "nearest_images",
    "open_images",
    "open_labelled",
    "overaug",
    "predict",
    "pretrain",
    "read_curves",
    "report",
    "search_attention",
    "segment",
]


def pretrain(
    recipe: str | Path | Mapping[str, Any] | None = None,
    *,
    resume: bool = False,
    on_row: Callable[[LogRow], None] | None = None,
    **settings: Any,
) -> Path:
    """Pre-train a backbone; returns the run folder.

    `recipe` is the name of a recipe, a TOML file, a run folder, a folder of photos, or the settings themselves as
    nested dictionaries; `settings` override them: `pretrain("quickstart", seed=1, optim={"epochs": 5})`. `on_row` is
    called with each row of metrics.jsonl, such as `{"step": 10, "loss": 9.5, ...}`, as soon as it is written: for live
    plots. In a notebook, a line shows the progress.
    """
    flags = dict(_by_full_name(settings))
    start, console = _recipe(recipe, flags, resume=resume), LoggingConsole()
    config = check(Config, start.values, flags)
    changed = changes(config, start.values, flags)
    if start.note:
        console.print(start.note)
    with _restore_torch_state(), listening(on_row):
        return pretrain_job(config, name=start.name, resume=resume, console=console, changes=changed)


def make_views(
    image: Image.Image, recipe: str | Path | Mapping[str, Any] | None = None, *, seed: int = 0, **settings: Any
) -> ViewBatch:
    """The views of an RGB image that `pretrain` would train on with this recipe and these settings.

    Views are uint8: (G, 3, H, W) global and (N, 3, h, w) local ones, with their boxes as fractions of the image.
    """
    flags = dict(_by_full_name(settings))
    config = check(Config, _recipe(recipe, flags).values, flags)
    config, _ = resolve(config, config.optim.batch_size, torch.device("cpu"))  # views depend on neither
    return MultiCrop(**config.crops | {"colours": "loader"})(image, seed)


def knn(target: str | Path, **settings: Any) -> list[Metric]:
    """Score a backbone by its nearest neighbours; returns its metrics, such as `k=20 top-1`."""
    with _restore_torch_state():
        return knn_job(str(target), check(Knn, {}, settings), LoggingConsole())


def linear(target: str | Path, **settings: Any) -> list[Metric]:
    """Score a backbone by linear classifiers on its frozen features, and save the best in its run folder."""
    with _restore_torch_state():
        return linear_job(str(target), check(Linear, {}, settings), LoggingConsole())


def segment(target: str | Path, **settings: Any) -> list[Metric]:
    """Score the maps of a frozen backbone by the class of every pixel; returns metrics such as `linear mIoU`."""
    with _restore_torch_state():
        return segment_job(str(target), check(Segment, {}, settings), LoggingConsole())


def finetune(target: str | Path, recipe: str | Path | None = None, **settings: Any) -> list[Metric]:
    """Score a backbone by fine-tuning it with labels, and save the network."""
    values = {} if recipe is None else read_recipe(str(recipe), "finetune").values
    with _restore_torch_state():
        return finetune_job(str(target), check(Finetune, values, settings), LoggingConsole())


def detect(target: str | Path, recipe: str | Path | None = None, **settings: Any) -> list[Metric]:
    """Score a backbone by training a detector of boxes and masks from it, and save the detector."""
    values = {} if recipe is None else read_recipe(str(recipe), "detect").values
    with _restore_torch_state():
        return detect_job(str(target), check(Detect, values, settings), LoggingConsole())


def attend(*targets: str | Path, **settings: Any) -> Path | list[Metric]:
    """Draw where the feature search of backbones looks in images; returns the picture or, with `score`, metrics."""
    with _restore_torch_state():
        return attend_and_draw([str(target) for target in targets], check(Attend, {}, settings), LoggingConsole())


def embed(target: str | Path, source: str | Path, out: str | Path | None = None, **settings: Any) -> list[Match]:
    """Write the features of every image to `out`; with `query` and `nearest`, returns the most similar images."""
    path = None if out is None else Path(out)
    with _restore_torch_state():
        return embed_job(str(target), str(source), path, check(Embed, {}, settings), LoggingConsole())


def predict(run: str | Path, images: str | Path, out: str | Path | None = None, **settings: Any) -> list[Prediction]:
    """Predict the class of each image with the newest classifier of a run, trained by `linear` or `finetune`.

    `out`: a new CSV file for the predictions. The folder of a detector finds objects instead, which are written to
    `out`, a JSON file; the list is then empty.
    """
    path = None if out is None else Path(out)
    with _restore_torch_state():
        return predict_job(str(run), str(images), path, check(Predict, {}, settings), LoggingConsole())


def export(target: str | Path, out: str | Path, **settings: Any) -> Exported:
    """Write a backbone for another library, in the format `to` or in that of the suffix of `out`."""
    return export_and_print(str(target), Path(out), check(Export, {}, settings), LoggingConsole())


def report(run: str | Path, *others: str | Path, **settings: Any) -> Path:
    """Write an HTML page of what a run learned, or several runs side by side; returns the page.

    `data`: the images, if they have moved; `out`: a new file for the page.
    """
    folders = [Path(each) for each in (run, *others)]
    with _restore_torch_state():
        return report_job(folders, check(Report, {}, settings), LoggingConsole())


def overaug(target: str | Path, **settings: Any) -> list[Metric]:
    """Compare class probabilities of local views, of their images and of feature augmentations (the paper's Fig. 1).

    With `audit=True`, suggest crop scales instead; returns the smallest areas of local and global views.
    """
    with _restore_torch_state():
        return overaug_job(str(target), check(Overaug, {}, settings), LoggingConsole())


def _recipe(recipe: str | Path | Mapping[str, Any] | None, flags: Mapping[str, Any], *, resume: bool = False) -> Recipe:
    if isinstance(recipe, Mapping):
        return Recipe("run", dict(recipe))
    return starting_point(None if recipe is None else str(recipe), flags, resume=resume)


def _by_full_name(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _by_full_name(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


@contextmanager
def _restore_torch_state() -> Iterator[None]:
    """Restore the caller's threads, GPU and random state, which jobs may change."""
    threads, benchmark = torch.get_num_threads(), torch.backends.cudnn.benchmark
    gpus = torch.cuda.device_count() if torch.cuda.is_initialized() else 0
    gpu = torch.cuda.current_device() if gpus else None
    try:
        with torch.random.fork_rng(devices=range(gpus)):
            yield
    finally:
        torch.set_num_threads(threads)
        torch.backends.cudnn.benchmark = benchmark
        if gpu is not None:
            torch.cuda.set_device(gpu)
