import errno
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from scfs.data.image_limits import CUT_SHORT, TimedBytes, TooExpensive, check_header, max_encoded
from scfs.data.image_limits import MAX_PIXELS as MAX_PIXELS
from scfs.data.paths import shown
from scfs.regular_file import read_regular

T = TypeVar("T")
# By content, whatever the file name. Not all of Pillow's formats: for some it starts other programs.
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF", "PPM")
SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif", ".ppm", ".pgm")
STRIP = 2**20  # pixels that are scaled at a time
ORIENTATION = 0x0112
TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


class Fault(Enum):
    """Why an image cannot be read, roughly."""

    DAMAGED = "damaged"  # also missing, or not an image
    CUT_SHORT = "cut short"
    TOO_LARGE = "too large"  # to decode


class Unreadable(Exception):  # noqa: N818 - neither the user's mistake nor ours
    """One image cannot be read: damaged, cut short, too large or missing. The others may be fine."""

    def __init__(self, name: str, reason: str = "", fault: Fault = Fault.DAMAGED):
        super().__init__(name, reason, fault)  # all, so that it survives pickling
        self.name, self.reason, self.fault = name, reason, fault

    def __str__(self) -> str:
        return shown(f"Cannot read image {self.name}: {self.reason}" if self.reason else self.name)


def decode(data: bytes | str | Path, *, name: str = "", max_pixels: int = MAX_PIXELS, min_side: int = 0) -> Image.Image:
    """Decode bytes or a file to an upright RGB image, or raise `Unreadable`.

    An animation gives its first frame. Transparency is dropped, not blended, and colour profiles are not applied, as
    is usual. Pillow, because torchvision's decoder kills the process on a truncated PNG. With `min_side`, a JPEG is
    decoded at an eighth, a quarter or half of its size, which is faster, if its shorter side keeps that many pixels.
    """
    return _decode(data, upright_rgb, name, max_pixels, min_side)


def decode_indices(path: str | Path, *, max_pixels: int = MAX_PIXELS) -> NDArray[np.uint8]:
    """The palette indices (H, W) of an image file, or the levels of a grey one; raises `Unreadable`."""
    return _decode(path, _indices, "", max_pixels)


def _decode(
    data: bytes | str | Path, convert: Callable[[Image.Image], T], name: str, max_pixels: int, min_side: int = 0
) -> T:
    name = name or ("bytes" if isinstance(data, bytes) else str(data))
    try:
        encoded = data if isinstance(data, bytes) else read_regular(data, limit=max_encoded(max_pixels))
        if not encoded:
            raise ValueError("the file is empty")
        with _quiet_pillow(), Image.open(TimedBytes(encoded), formats=FORMATS) as image:
            check_header(image, encoded, max_pixels)
            if min_side:
                image.draft(None, (min_side, min_side))
            image.load()
            return convert(image)
    except Exception as error:  # on damaged files Pillow raises nearly anything
        raise Unreadable(name, reason_of(error), _fault(error)) from None


def upright_rgb(image: Image.Image) -> Image.Image:
    """An image of any mode as RGB, turned as its EXIF orientation says."""
    turn = TURNS.get(_orientation(image))  # after loading, which already rotates a TIFF
    rgb = _as_rgb(image)
    rgb.info = {}  # so that nobody rotates it again
    return rgb if turn is None else rgb.transpose(turn)


def _indices(image: Image.Image) -> NDArray[np.uint8]:
    if image.mode not in ("P", "L"):
        raise ValueError(f"its pixels are {image.mode}, not indices of a palette")
    return np.array(image, np.uint8)


@contextmanager
def _quiet_pillow() -> Iterator[None]:
    """Within it, Pillow neither warns nor applies its own size limit in place of the user's."""
    limit = Image.MAX_IMAGE_PIXELS
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        Image.MAX_IMAGE_PIXELS = None
        try:
            yield
        finally:
            Image.MAX_IMAGE_PIXELS = limit


def _orientation(image: Image.Image) -> int:
    """The EXIF orientation; upright if the EXIF block is damaged."""
    try:
        return int(image.getexif().get(ORIENTATION, 1))
    except Exception:
        return 1


def _as_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):  # 16 bits, of which many cameras use 12, or 32; Pillow would clip
        image = _scaled(np.asarray(image), tops=(4095, 65535))
    elif image.mode == "F":
        image = _scaled(np.nan_to_num(np.array(image), copy=False), tops=(1, 255, 65535))
    return image.convert("RGB")


def _scaled(levels: NDArray[np.generic], tops: tuple[int, ...]) -> Image.Image:
    """Levels of unknown range as 8-bit grey: white is the first of `tops` that they do not exceed."""
    largest = float(np.max(levels))
    top = next((top for top in tops if largest <= top), largest)
    grey = np.empty(levels.shape, np.uint8)
    rows = max(1, STRIP // max(1, levels.shape[1]))
    for first in range(0, len(grey), rows):  # in strips: all at once would take 20 bytes per pixel
        values = levels[first : first + rows].astype(np.float64)
        grey[first : first + rows] = np.clip(values * (256 / (top + 1) if top > 1 else 255), 0, 255).astype(np.uint8)
    return Image.fromarray(grey)


def _fault(error: Exception) -> Fault:
    if isinstance(error, TooExpensive) or (isinstance(error, OSError) and error.errno == errno.EFBIG):
        return Fault.TOO_LARGE
    return Fault.CUT_SHORT if reason_of(error) == CUT_SHORT else Fault.DAMAGED


def reason_of(error: Exception) -> str:
    """Why an image cannot be read, in a few words without memory addresses."""
    if isinstance(error, UnidentifiedImageError):
        return "it is not an image of a known format"
    if isinstance(error, OSError) and error.errno:
        return error.strerror or os.strerror(error.errno)
    text = str(error).strip().splitlines() or [type(error).__name__]
    return CUT_SHORT if "truncated" in text[0].lower() else text[0]
