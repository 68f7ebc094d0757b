"""Example views: what the network is trained on."""

from collections.abc import Sequence

from PIL import Image

from scfs.config import Config
from scfs.data.views import MultiCrop
from scfs.view_batch import ViewBatch
from scfs.visualize.report.markup import Html, Section, join, tag
from scfs.visualize.report.thumbnails import framed, picture, with_boxes

PHOTO_SIDE = 224


def draw_views(images: Sequence[Image.Image], config: Config) -> list[ViewBatch]:
    """The views of each image, the same every time."""
    multi_crop = MultiCrop(**config.crops | {"colours": "loader"})
    return [multi_crop(image, config.seed + number) for number, image in enumerate(images)]


def view_section(images: Sequence[Image.Image], views: Sequence[ViewBatch]) -> Section:
    """Each photo with the boxes of its views, and the views."""
    blocks = [_photo(image, batch) for image, batch in zip(images, views, strict=True)]
    intro = "Photos with the boxes of their views, and the views as the network sees them in training."
    return Section("Example views", join(blocks), intro)


def _photo(image: Image.Image, batch: ViewBatch) -> Html:
    boxes = [*batch.global_boxes.tolist(), *batch.local_boxes.tolist()]
    photo = tag("figure", picture(with_boxes(image, boxes, PHOTO_SIDE), "photo with the boxes of its views"))
    names = [f"global {i + 1}" for i in range(len(batch.global_views))]
    names += [f"local {i + 1}" for i in range(len(batch.local_views))]
    cells = []
    for number, (name, view) in enumerate(zip(names, [*batch.global_views, *batch.local_views], strict=True)):
        drawn = Image.fromarray(view.movedim(0, -1).contiguous().numpy())
        cells.append(tag("figure", picture(drawn, name, style=framed(number)), tag("figcaption", name)))
    strip = tag("div", *cells, class_="strip views")
    return tag("div", photo, strip, class_="maps")
