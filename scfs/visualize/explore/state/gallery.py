"""The images of the page: those of a source, by their index, and photos that users add, in memory only."""

import io
import re
from collections import OrderedDict
from threading import Lock
from typing import Any

from PIL import Image

from scfs.data.decode import decode
from scfs.data.paths import readable
from scfs.data.sources import Source
from scfs.visualize.explore.state.byte_cache import ByteCache

MAX_SIDE = 1280  # of what is shown and searched; larger images are reduced to it once
SIZES = {"thumbnail": 112, "small": 400, "full": MAX_SIDE}  # longest side in pixels, as served
DECODED_BYTES, ENCODED_BYTES = 128 * 2**20, 32 * 2**20
MAX_OWN, MAX_OWN_PIXELS = 16, 50_000_000  # photos that users add
JPEG_QUALITY = 92
CENTRE = (0.3, 0.3, 0.7, 0.7)

FractionBox = tuple[float, float, float, float]  # left, top, right, bottom as fractions of the image


class UnknownPhoto(LookupError):  # noqa: N818 - an answer, not an error of ours
    """There is no image of that name, or not any more."""


class Gallery:
    """Images by name: "12" is the image of index 12 in the source, "own-3" the third photo that a user added.

    Of these, the most recent are kept. Threads may share a gallery; one at a time reads the source.
    """

    def __init__(self, source: Source):
        self.source = source
        self._decoded: ByteCache[str, Image.Image] = ByteCache(
            DECODED_BYTES, lambda image: 3 * image.width * image.height
        )
        self._encoded: ByteCache[tuple[str, str], bytes] = ByteCache(ENCODED_BYTES, len)
        self._own: OrderedDict[str, Image.Image] = OrderedDict()
        self._num_added = 0
        self._lock, self._reading = Lock(), Lock()

    def image(self, photo: str) -> Image.Image:
        """An image of at most `MAX_SIDE` pixels a side; `Unreadable` if it is damaged."""
        if (index := self._index(photo)) is None:
            return self._own_image(photo)
        if (image := self._decoded.get(photo)) is None:
            with self._reading:
                image = _reduced(self.source.image(index), MAX_SIDE)
            self._decoded.put(photo, image)
        return image

    def encoded(self, photo: str, size: str) -> bytes:
        """An image as JPEG, in one of `SIZES`."""
        key = (photo, size)
        self._index(photo)  # also for what is still encoded: photos that are no longer kept are unknown
        if (data := self._encoded.get(key)) is None:
            buffer = io.BytesIO()
            _reduced(self.image(photo), SIZES[size]).save(buffer, "JPEG", quality=JPEG_QUALITY)
            data = buffer.getvalue()
            self._encoded.put(key, data)
        return data

    def add(self, data: bytes) -> str:
        """Keep a user's photo; returns its name. `Unreadable` if it cannot be decoded or is too large."""
        image = _reduced(decode(data, name="your photo", max_pixels=MAX_OWN_PIXELS), MAX_SIDE)
        with self._lock:
            self._num_added += 1
            photo = f"own-{self._num_added}"
            self._own[photo] = image
            while len(self._own) > MAX_OWN:
                self._own.popitem(last=False)
        return photo

    def title(self, photo: str) -> str:
        """What an image is called below it: its class, or else the last part of its name."""
        if (index := self._index(photo)) is None:
            return "your photo"
        if self.source.classes:
            return readable(self.source.classes[self.source.label(index)])
        return readable(self.source.name(index)).rpartition("/")[2]

    def describe(self, photo: str) -> dict[str, Any]:
        """Name, title, width and height of an image, and the box to start with."""
        width, height = self.image(photo).size
        return {
            "photo": photo,
            "title": self.title(photo),
            "width": width,
            "height": height,
            "box": self._first_box(photo),
        }

    def _first_box(self, photo: str) -> FractionBox:
        """The box of the first object if the source knows it; otherwise the middle of the image."""
        index = self._index(photo)
        if index is None or not hasattr(self.source, "objects"):
            return CENTRE
        with self._reading:
            boxes = self.source.objects(index).boxes
            width, height = self.source.image_size(index)  # type: ignore[attr-defined]
        if not len(boxes):
            return CENTRE
        left, top, right, bottom = (float(value) for value in boxes[0])
        return left / width, top / height, right / width, bottom / height

    def _index(self, photo: str) -> int | None:
        """The index in the source; None for a photo that a user added."""
        if re.fullmatch("[0-9]{1,10}", photo) and int(photo) < len(self.source):
            return int(photo)
        if not photo.startswith("own-"):
            raise UnknownPhoto(f"There is no such image; they are numbered from 0 to {len(self.source) - 1}.")
        self._own_image(photo)
        return None

    def _own_image(self, photo: str) -> Image.Image:
        with self._lock:
            if (image := self._own.get(photo)) is not None:
                return image
        raise UnknownPhoto("This photo is no longer kept; add it again.")


def _reduced(image: Image.Image, side: int) -> Image.Image:
    """The image, or a smaller copy if it has more than so many pixels per side."""
    if max(image.size) <= side:
        return image
    copy = image.copy()
    copy.thumbnail((side, side), Image.Resampling.LANCZOS)
    return copy
