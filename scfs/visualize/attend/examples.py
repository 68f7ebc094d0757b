"""Which images and queries a picture of attention shows."""

from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from scfs.data.decode import Unreadable, decode
from scfs.data.loader import derive_seed
from scfs.data.sources import Source
from scfs.errors import UserError
from scfs.visualize.attend.settings import Attend
from scfs.visualize.features import sample_indices
from scfs.visualize.queries import Box, Example, random_boxes, tiles

Indexed = list[tuple[int | None, Image.Image]]  # index in a source, if there is one


def choose_examples(source: Source | None, settings: Attend, *, max_pixels: int) -> tuple[list[Example], list[str]]:
    """Examples from the files of the settings or from a source, and the problems of images that cannot be read.

    max_pixels: of a file.
    """
    images: Indexed = [(None, read_image(name, max_pixels)) for name in settings.images]
    problems: list[str] = []
    if source is not None:
        images, problems = _spread(source, settings.count)
    others = (
        _others(source, images, settings, max_pixels) if settings.show == "other" else [image for _, image in images]
    )
    return [
        Example(image, _boxes(image, settings, derive_seed(settings.seed, number)), other)
        for number, ((_, image), other) in enumerate(zip(images, others, strict=True))
    ], problems


def read_image(name: str, max_pixels: int) -> Image.Image:
    """An image file that the user named."""
    try:
        return decode(Path(name).expanduser(), max_pixels=max_pixels)
    except Unreadable as error:
        raise UserError(f"{error}; give another image.") from None


def _spread(source: Source, count: int) -> tuple[Indexed, list[str]]:
    """Readable images, evenly spaced; one that cannot be read is left out."""
    images: Indexed = []
    problems = []
    for index in sample_indices(len(source), count):
        try:
            images.append((index, source.image(index)))
        except Unreadable as error:
            problems.append(str(error))
    if not images:
        raise UserError(f"None of the images can be read, such as {problems[0]}; give other images.")
    return images, problems


def _boxes(image: Image.Image, settings: Attend, seed: int) -> list[Box]:
    if settings.show == "jigsaw":
        return tiles(image.size)
    if settings.box is not None:
        left, top, right, bottom = (
            round(edge * extent) for edge, extent in zip(settings.box, 2 * image.size, strict=True)
        )
        left, top = min(left, image.width - 1), min(top, image.height - 1)
        return [(left, top, max(right, left + 1), max(bottom, top + 1))]
    return random_boxes(image.size, settings.views, area=settings.scale, seed=seed)


def _others(source: Source | None, images: Indexed, settings: Attend, max_pixels: int) -> list[Image.Image]:
    """The image to search for the queries of each: as given, another one of the same class, or the next one."""
    if settings.other:
        return [read_image(settings.other, max_pixels)] * len(images)
    following = [image for _, image in [*images[1:], *images[:1]]]
    if source is None or not source.classes:
        if len(images) < 2:
            raise UserError("--show other needs a second image to search; give it with --other FILE.")
        return following
    return [_same_class(source, index) or other for (index, _), other in zip(images, following, strict=True)]


def _same_class(source: Source, index: int | None) -> Image.Image | None:
    """The next readable image of the same class; None if there is no other."""
    assert index is not None
    label = source.label(index)
    if label < 0:
        return None
    for candidate in _circle(index, len(source)):
        if source.label(candidate) == label:
            try:
                return source.image(candidate)
            except Unreadable:
                continue
    return None


def _circle(index: int, length: int) -> Sequence[int]:
    """All other indices, starting after one of them."""
    return [*range(index + 1, length), *range(index)]
