"""What one image may cost to decode, checked in its header: a few kilobytes can ask for gigabytes or for hours."""

import io
import re
import time

from PIL import Image

MAX_PIXELS = 100_000_000
BYTES_PER_PIXEL = {"F": 8, "I": 8}  # with what it takes to convert them; 4 for other modes
MIN_LIMIT = 2**26  # bytes; below that, nothing is worth refusing
# Encoders write about 10 scans, and each may cost as much as decoding the whole image.
MAX_SCANS = 64
MAX_SCANNED = 16  # scans of an image with as many pixels as are allowed
MAX_SECONDS = 60.0  # of CPU time, so that a busy machine refuses no image that an idle one reads

CUT_SHORT = "the file is cut short"
PNG_END = b"IEND\xaeB`\x82"
SCAN = b"\xff\xda"
MARKER = re.compile(rb"\xff+([^\x00\xff\xd0-\xd7])")  # neither a byte of a scan nor a restart inside one
TILE_WIDTH, TILE_LENGTH, BITS_PER_SAMPLE, SAMPLES_PER_PIXEL = 322, 323, 258, 277


class TooExpensive(ValueError):  # noqa: N818 - of one image; the others may be fine
    """An image that takes more memory or time to decode than one image may."""


class TimedBytes(io.BytesIO):
    """Bytes that raise `TooExpensive` when they are read after the time for one image is over.

    Decoders read blocks of 64 kB or less, and what one block can cost is limited by `check_header`.
    """

    def __init__(self, data: bytes, seconds: float = MAX_SECONDS):
        super().__init__(data)
        self.seconds, self.end = seconds, time.thread_time() + seconds

    def read(self, size: int | None = -1, /) -> bytes:
        """The next bytes."""
        if time.thread_time() > self.end:
            raise TooExpensive(f"it takes more than {self.seconds:g} seconds to decode")
        return super().read(size)


def max_encoded(max_pixels: int) -> int:
    """The most bytes that a file may have: four uncompressed 16-bit channels per pixel, and some for the rest."""
    return 8 * max_pixels + MIN_LIMIT


def check_header(image: Image.Image, encoded: bytes, max_pixels: int) -> None:
    """Raise a `ValueError` if an opened image is cut short or `TooExpensive`, before any pixel is decoded."""
    num_pixels = image.width * image.height
    if num_pixels > max_pixels:
        raise TooExpensive(f"{image.width} x {image.height} is more than {max_pixels} pixels")
    limit = max(4 * max_pixels, MIN_LIMIT)
    if num_pixels * BYTES_PER_PIXEL.get(image.mode, 4) > limit:
        raise TooExpensive(f"{image.width} x {image.height} pixels of mode {image.mode} are more than {limit} bytes")
    if image.format == "PNG" and encoded.rfind(PNG_END) < 0:  # which Pillow does not always notice
        raise ValueError(CUT_SHORT)
    if image.format == "TIFF" and (size := _tiled_bytes(image)) > limit:
        raise TooExpensive(f"its tiles are {size} bytes, more than {limit}")
    if image.format in ("JPEG", "MPO"):
        most = max(1, min(MAX_SCANS, MAX_SCANNED * max_pixels // num_pixels))
        if encoded.count(SCAN) > most and (scans := num_scans(encoded, most)) > most:
            raise TooExpensive(f"it has {scans} scans or more, and {most} are allowed")


def num_scans(encoded: bytes, most: int) -> int:
    """The number of scans of a JPEG, counted up to `most` + 1; thumbnails and later images in the file do not count."""
    position, scans = 2, 0
    while scans <= most and (match := MARKER.search(encoded, position)):
        marker = match[1][0]
        if marker == 0xD9:  # the end of the image
            break
        scans += marker == SCAN[1]
        # Standalone markers have no length.
        position = match.end() + (
            0 if marker == 0x01 else int.from_bytes(encoded[match.end() : match.end() + 2], "big")
        )
    return scans


def _tiled_bytes(image: Image.Image) -> int:
    """The bytes of all tiles of a TIFF, which may be far larger than the image; 0 if it has none."""
    tags = getattr(image, "tag_v2", {})
    width, length = (int(tags.get(tag) or 0) for tag in (TILE_WIDTH, TILE_LENGTH))
    if not width or not length:
        return 0
    bits, samples = tags.get(BITS_PER_SAMPLE, 1), int(tags.get(SAMPLES_PER_PIXEL) or 1)
    bits_per_pixel = max(bits) * samples if isinstance(bits, tuple) else int(bits) * samples
    num_tiles = -(-image.width // width) * -(-image.height // length)
    return num_tiles * width * length * bits_per_pixel // 8
