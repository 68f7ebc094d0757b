"""The policy on images that cannot be read.

Training replaces them by other images, evaluation leaves them out; each is reported once; too many are an error.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from PIL import Image
from rich.console import Console

from scfs.data.counted import counted
from scfs.data.decode import Unreadable, reason_of
from scfs.data.sources import Source
from scfs.distributed import on_rank_zero
from scfs.errors import UserError, out_of_memory
from scfs.runs.files import append_text

T = TypeVar("T")
MAX_UNREADABLE = 0.01  # fraction of the images
ALWAYS_ALLOWED = 10  # a handful is never fatal, unless it is half of the images
MAX_LISTED = 10  # in one message
MAX_TRIES = 100  # images to try in place of one that cannot be read
NEIGHBOURS = 3  # of them the next ones; the others are all over the data, since damage clusters


@contextmanager
def reading(source: Source, index: int) -> Iterator[None]:
    """Within it, whatever goes wrong with one image, from its bytes to its views, is `Unreadable`.

    Except what is not about this image: a `UserError`, and memory that ran out.
    """
    try:
        yield
    except (Unreadable, UserError):
        raise
    except Exception as error:
        if out_of_memory(error):
            raise
        raise Unreadable(source.name(index), f"{type(error).__name__}: {reason_of(error)}") from error


def readable_image(source: Source, index: int) -> tuple[Image.Image, int, list[str]]:
    """The image at an index or, where it cannot be read, the next one that can; its index, and the problems."""
    return first_readable(source, index, lambda image, _: image)


def first_readable(source: Source, index: int, make: Callable[[Image.Image, int], T]) -> tuple[T, int, list[str]]:
    """What `make` returns for the image at an index or, where that fails, for the next one that can be read.

    `make` also gets the index of the image; that is returned as well, with the problems.
    """
    unreadable: list[str] = []
    for candidate in _candidates(index, len(source)):
        try:
            with reading(source, candidate):
                return make(source.image(candidate), candidate), candidate, unreadable
        except Unreadable as error:
            unreadable.append(str(error))
    raise UserError(
        f"None of {counted(len(unreadable), 'image')} can be read, the last: {unreadable[-1]}; check the data."
    )


def _candidates(index: int, num_images: int) -> Iterator[int]:
    """The image at an index, its neighbours, and then images all over the data; each once."""
    stride = max(1, num_images // MAX_TRIES)
    for i in range(min(MAX_TRIES, num_images)):
        yield (index + (i if i < NEIGHBOURS else i * stride)) % num_images


def num_allowed(num_images: int, max_fraction: float = MAX_UNREADABLE) -> int:
    """How many images may be unreadable: a fraction of them or ten, whichever is more, but always less than half."""
    less_than_half = max(0, math.ceil(num_images / 2) - 1)
    return min(max(int(max_fraction * num_images), ALWAYS_ALLOWED), less_than_half)


class UnreadableImages:
    """Images that could not be read: reports each once, counts them per epoch, and raises a `UserError` at too many.

    With a `path`, every one is written to that file, and those already in it are not reported again; all processes must
    then add the same ones.
    """

    def __init__(self, num_images: int, *, max_fraction: float = MAX_UNREADABLE, path: Path | None = None):
        self.num_images, self.max_fraction, self.path = num_images, max_fraction, path
        self.reported = set[str]()
        if path is not None and path.exists():
            self.reported.update(path.read_text(encoding="utf-8").splitlines())
        self.epoch, self.count = 0, 0

    def check(self, epoch: int, problems: Sequence[str]) -> Iterator[str]:
        """Lines to print about the problems of all processes in a step."""
        self.count = len(problems) + (self.count if epoch == self.epoch else 0)
        self.epoch = epoch
        for problem in self.add(problems):
            yield replaced(problem)
        self.refuse_too_many(self.count)

    def add(self, problems: Iterable[str]) -> list[str]:
        """Record problems; returns those that are new, in order."""
        new = sorted({*problems} - self.reported)
        self.reported.update(new)
        if new and self.path is not None:
            path, text = self.path, "".join(f"{problem}\n" for problem in new)
            on_rank_zero(lambda: append_text(path, text))
        return new

    def refuse_too_many(self, count: int | None = None) -> None:
        """Raise a `UserError` at too many; `count` overrides the number reported here."""
        count = len(self.reported) if count is None else count
        if count <= (allowed := num_allowed(self.num_images, self.max_fraction)):
            return
        which = _listed(sorted(self.reported)) if self.path is None else f"all are listed in {self.path}"
        is_setting = self.path is not None and allowed < num_allowed(self.num_images, 1.0)
        remedy = "repair or remove them" + (", or raise data.max_unreadable" if is_setting else "")
        raise UserError(
            f"{count} of {counted(self.num_images, 'image')} cannot be read, more than the {allowed} allowed "
            f"({which}); {remedy}."
        )


def refuse_unreadable(problems: Sequence[str], num_images: int) -> None:
    """Raise a `UserError` at too many images that cannot be read."""
    unreadable = UnreadableImages(num_images)
    unreadable.add(problems)
    unreadable.refuse_too_many(len(problems))


def replaced(problem: str) -> str:
    """The message of a training about an image that cannot be read."""
    return f"Unreadable, replaced by the next image: {problem}"


def show_replaced(console: Console) -> Callable[[str], None]:
    """A function that prints that an unreadable image was replaced."""
    return lambda problem: _show(console, replaced(problem))


def show_left_out(problems: Iterable[str], console: Console) -> None:
    """Print which unreadable images were left out."""
    for problem in problems:
        _show(console, f"Unreadable, left out: {problem}")


def _show(console: Console, line: str) -> None:
    console.print(line, style="yellow")


def _listed(problems: Sequence[str]) -> str:
    """Up to ten problems, in one line."""
    shown = "; ".join(problem.removeprefix("Cannot read image ") for problem in problems[:MAX_LISTED])
    return shown if len(problems) <= MAX_LISTED else f"{shown}; and {len(problems) - MAX_LISTED} more"
