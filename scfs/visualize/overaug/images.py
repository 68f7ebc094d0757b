from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from PIL import Image
from rich.console import Console
from rich.progress import track

from scfs.backbones import Backbone
from scfs.config import DataSettings
from scfs.data.decode import SUFFIXES, Unreadable
from scfs.data.sources import Source, open_all, open_labelled, open_train
from scfs.data.unreadable import refuse_unreadable, show_left_out
from scfs.visualize.attention import usable_side
from scfs.visualize.features import sample_indices
from scfs.visualize.run_settings import config_of

Scale = tuple[float, float]
PAPER_GLOBAL, PAPER_LOCAL = (0.14, 1.0), (0.05, 0.14)
LOCAL_TO_GLOBAL = 96 / 224  # the paper's sides
NEW_LOCAL_VIEWS = 4  # of an image, as in the recipes for small budgets


class Crops(NamedTuple):
    """Sides, areas and blur of views."""

    global_size: int
    local_size: int
    global_scale: Scale = PAPER_GLOBAL
    local_scale: Scale = PAPER_LOCAL
    blur: float = 1.0


def crops_of(target: str, backbone: Backbone, global_size: int) -> Crops:
    """The crops that a run was trained with; of other weights, the paper's, in proportion to the size of images.

    Local views of a run that has none are half as large as its global ones.
    """
    config = config_of(target)
    if config is None:
        return Crops(global_size, usable_side(backbone, round(LOCAL_TO_GLOBAL * global_size)))
    views = config.views
    return Crops(
        global_size,
        views.local_size if config.num_local_views else usable_side(backbone, views.global_size // 2),
        PAPER_GLOBAL if views.global_scale == "auto" else views.global_scale,
        PAPER_LOCAL if views.local_scale == "auto" else views.local_scale,
        1.0 if views.blur == "auto" else views.blur,
    )


def flags_of_new_local_views(target: str, local_size: int) -> str:
    """What gives a run local views that was trained without; empty for other runs and for weights alone."""
    config = config_of(target)
    if config is None or config.num_local_views:
        return ""
    contrast = config.method.contrast.removesuffix("-no-multicrop")
    return f"--method.contrast {contrast} --views.num_local_views {NEW_LOCAL_VIEWS} --views.local_size {local_size}"


def open_unseen(data: DataSettings) -> Source:
    """The val images of a source with classes, on which no probe was trained; of any other source, all images."""
    path = Path(data.source).expanduser()
    if path.is_file() and path.suffix.lower() in SUFFIXES:
        return open_all(data.source, max_pixels=data.max_pixels)
    train = open_train(data.source, classes=data.classes, max_pixels=data.max_pixels)
    if len(train.classes) > 1:
        return open_labelled(data.source, classes=data.classes, max_pixels=data.max_pixels)[1]
    return train if data.classes else open_all(data.source, max_pixels=data.max_pixels)


def sampled_images(source: Source, limit: int, console: Console) -> Iterator[tuple[int, Image.Image]]:
    """At most so many images of a source, evenly spaced, with their indices.

    Unreadable ones are left out and listed in the end; too many are an error.
    """
    chosen, unreadable = sample_indices(len(source), limit), list[str]()
    for index in track(chosen, "images", console=console, transient=True, disable=not console.is_terminal):
        try:
            image = source.image(index)
        except Unreadable as error:
            unreadable.append(str(error))
            continue
        yield index, image
    refuse_unreadable(unreadable, len(chosen))
    show_left_out(unreadable, console)
