from collections.abc import Sequence
from pathlib import Path

import torch.nn.functional as F
from PIL import Image, ImageOps
from rich.console import Console
from rich.progress import Progress

from scfs.backbones import Backbone, Loaded, load_backbone
from scfs.config import Config
from scfs.data.loader import num_workers
from scfs.data.sources import Source, open_train
from scfs.data.unreadable import readable_image, show_left_out
from scfs.data.views import MultiCrop
from scfs.distributed import choose_device
from scfs.errors import UserError
from scfs.recipe import check, read_toml
from scfs.runs.files import write_text
from scfs.runs.layout import SETTINGS, read_metrics
from scfs.runs.metrics_log import summarise
from scfs.visualize.attention import Searcher, search_own_image, usable_side
from scfs.visualize.features import Sample, sample_features
from scfs.visualize.neighbours import choose_queries, nearest_others
from scfs.visualize.page import Section, render_page
from scfs.visualize.pictures import save_attention, save_neighbours, save_projection, save_views
from scfs.visualize.projection import project
from scfs.visualize.queries import random_boxes
from scfs.visualize.sections import curve_sections, result_sections, setting_section
from scfs.visualize.settings import Report
from scfs.visualize.task_report import report_task, task_of

NUM_IMAGES, NUM_QUERIES, NUM_NEIGHBOURS = 6, 2, 6
NUM_FEATURES = 2048  # images at most for neighbours and projection
THUMBNAIL = 128  # pixels


def report(run: Path, settings: Report, console: Console) -> Path:
    """Write an HTML page with pictures of what a run learned: the `scfs report` command. Returns the page."""
    if (run / SETTINGS).is_file() and (task := task_of(run)):
        return report_task(run, task, settings.data, console)
    config = _read_settings(run)
    source = _open_images(run, config, settings.data)
    device = choose_device("auto")
    loaded = load_backbone(str(run))
    loaded.backbone.to(device)
    rows, folder = read_metrics(run), run / "report"
    images = [readable_image(source, i)[0] for i in range(min(NUM_IMAGES, len(source)))]
    sample = _sample(loaded, source, num_workers(config.data.workers, device), console)
    sections = [
        *result_sections(run),
        *curve_sections(folder, rows),
        _draw_views(folder, images, config),
        _draw_attention(folder, images, loaded.backbone, config),
        *_feature_sections(folder, source, sample),
        setting_section(config.model_dump(mode="json")),
    ]
    summary = summarise(rows)
    page = folder / "index.html"
    write_text(page, render_page(f"Run {run.name}", summary, sections))
    _print_paths(console, run, summary)
    show_left_out(sample.unreadable, console)
    return page


def _read_settings(run: Path) -> Config:
    if not (run / SETTINGS).is_file():
        raise UserError(f"{run} is not a run folder (it has no {SETTINGS}).")
    return check(Config, read_toml(run / SETTINGS))


def _open_images(run: Path, config: Config, moved_to: str) -> Source:
    """The images that a run was trained on."""
    data = config.data
    try:
        return open_train(moved_to or data.source, classes=data.classes, max_pixels=data.max_pixels)
    except UserError as error:
        if moved_to:
            raise
        reason = str(error).partition(";")[0].rstrip(".")
        raise UserError(f"{reason}; if the images of {run} have moved, add --data and where they are now.") from None


def _sample(loaded: Loaded, source: Source, workers: int, console: Console) -> Sample:
    size = loaded.evaluated_size("auto")
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("features", total=min(NUM_FEATURES, len(source)))
        return sample_features(
            loaded.backbone,
            source,
            size=size,
            limit=NUM_FEATURES,
            workers=workers,
            on_batch=lambda images: progress.advance(task, images),
        )


def _draw_views(folder: Path, images: Sequence[Image.Image], config: Config) -> Section:
    multi_crop = MultiCrop(**config.crops | {"colours": "loader"})
    views = [multi_crop(image, config.seed + number) for number, image in enumerate(images)]
    save_views(folder / "views.png", images, views)
    text = "Each row: an image with the boxes of its views, then its global and its local views."
    return Section("Example views", text, "views.png")


def _draw_attention(folder: Path, images: Sequence[Image.Image], backbone: Backbone, config: Config) -> Section:
    """Images are enlarged to 1.5 times the training size if the network accepts that, for a finer deepest map."""
    size = config.views.global_size
    try:
        side = usable_side(backbone, int(1.5 * size))
    except UserError:
        side = size
    query_side = config.views.local_size if config.num_local_views else size
    searcher = Searcher(backbone, side=side, query_side=query_side)
    searched = [
        search_own_image(searcher, image, random_boxes(image.size, NUM_QUERIES, seed=config.seed + number))
        for number, image in enumerate(images)
    ]
    save_attention(folder / "attention.png", searched)
    text = "Two queries cut from each image, and their cosine similarity with the whole image at each search layer."
    return Section("Attention", f"{text} Brighter is more similar; each map has its own scale.", "attention.png")


def _feature_sections(folder: Path, source: Source, sample: Sample) -> list[Section]:
    """Nearest neighbours and projection; meaningless with a single image."""
    if len(sample.features) < 2:
        return []
    return [_draw_neighbours(folder, source, sample), _draw_projection(folder, source, sample)]


def _draw_neighbours(folder: Path, source: Source, sample: Sample) -> Section:
    rows = choose_queries(sample.labels, NUM_IMAGES)
    neighbours = nearest_others(sample.features, rows, NUM_NEIGHBOURS)
    has_classes = bool(source.classes)
    save_neighbours(
        folder / "neighbours.png",
        [_thumbnail(source, sample, row) for row in rows],
        [source.classes[sample.labels[row]] if has_classes else "query" for row in rows],
        [[_thumbnail(source, sample, row) for row in found] for found in neighbours.indices.tolist()],
        neighbours.cosines,
        sample.labels[neighbours.indices] == sample.labels[rows].unsqueeze(1) if has_classes else None,
    )
    text = f"Each row: an image and the most similar of {len(sample.features)} training images, with their cosines."
    frames = " Blue frames: the same class; orange frames: another class." if has_classes else ""
    return Section("Nearest neighbours", text + frames, "neighbours.png")


def _draw_projection(folder: Path, source: Source, sample: Sample) -> Section:
    projection = project(F.normalize(sample.features, dim=-1))
    save_projection(folder / "projection.png", projection, sample.labels, source.classes)
    text = f"L2-normalised features of {len(sample.features)} training images on their first two principal components."
    return Section("Projection", text, "projection.png")


def _thumbnail(source: Source, sample: Sample, row: int) -> Image.Image:
    return ImageOps.fit(source.image(int(sample.indices[row])), (THUMBNAIL, THUMBNAIL))


def _print_paths(console: Console, run: Path, summary: str) -> None:
    lines = {
        "run folder": run,
        "example views": run / "report" / "views.png",
        "attention maps": run / "report" / "attention.png",
        "report": run / "report" / "index.html",
    }
    console.print(f"\n{summary}", style="bold", highlight=False, soft_wrap=True)
    for name, path in lines.items():
        console.print(f"{name:15} {path}", highlight=False, soft_wrap=True)
