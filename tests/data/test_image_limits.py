"""What one image may cost is checked in its header: none of these tests decodes a large image."""

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional as F

from scfs.data.decode import Fault, Unreadable, decode
from scfs.data.image_limits import MAX_SCANS, TimedBytes, TooExpensive, num_scans
from scfs.data.views import as_tensor, centre_view, square_view
from scfs.preprocessing import resized_side


def encoded(image, kind, **options):
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def photo(width=64, height=48):
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8))


def tiff(width, height, tags=(), *, bits=8, kind=1, data=b""):
    """A compressed grey TIFF whose header says anything."""
    packed = zlib.compress(data or bytes(1000))
    rows = {256: width, 257: height, 258: bits, 259: 8, 262: 1, 277: 1, 339: kind, **dict(tags)}
    offsets, counts = (324, 325) if 322 in rows else (273, 279)
    rows |= {offsets: 8 + 2 + 12 * (len(rows) + 2) + 4, counts: len(packed)}
    header = b"II*\0" + struct.pack("<IH", 8, len(rows))
    return header + b"".join(struct.pack("<HHII", t, 4, 1, v) for t, v in sorted(rows.items())) + bytes(4) + packed


def with_scans(data, count):
    """A progressive JPEG whose last scan is there `count` times more."""
    return data[:-2] + data[data.rfind(b"\xff\xda") : -2] * count + data[-2:]


@pytest.mark.parametrize(
    ("view", "size"),
    [
        (centre_view, (1, 10_000)),
        (centre_view, (10_000, 1)),
        (square_view, (1, 1_000_000)),
        (square_view, (1_000_000, 1)),
    ],
)
def test_a_line_of_pixels_takes_little_memory(view, size):
    image = Image.new("RGB", size, (10, 200, 30))
    Image.core.clear_cache()
    Image.core.reset_stats()
    pixels = view(image, 64)
    assert Image.core.get_stats()["allocated_blocks"] * Image.core.get_block_size() < 10**8
    assert pixels.shape == (3, 64, 64)
    assert pixels[:, 32, 32].tolist() == [10, 200, 30]


def before(image, size):
    image = F.resize(image, [resized_side(size)], interpolation=InterpolationMode.BICUBIC)
    return as_tensor(F.center_crop(image, [size, size]))


@pytest.mark.parametrize("size", [(64, 48), (97, 33), (8, 64), (512, 64), (5, 5)])
def test_the_views_of_ordinary_photos_are_those_of_dino(size):
    image = photo(*size)
    assert centre_view(image, 32).equal(before(image, 32))


def test_the_centre_of_a_panorama_is_as_before():
    smooth = np.sin(np.arange(64 * 9) / 40)[None, :, None] * np.cos(np.arange(64) / 20)[:, None, None]
    image = Image.fromarray((127 + 120 * smooth).astype(np.uint8).repeat(3, axis=2))
    assert (centre_view(image, 32).int() - before(image, 32).int()).abs().max() <= 5
    assert centre_view(image, 32).float().std() > 20


def refused(data, match, **options):
    with pytest.raises(Unreadable, match=match) as error:
        decode(data, **options)
    assert error.value.fault is Fault.TOO_LARGE


def test_floats_count_twice():
    refused(tiff(9000, 9000, bits=32, kind=3), "9000 x 9000 pixels of mode F are more than 400000000 bytes")


@pytest.mark.parametrize("tile", [(40_000, 40_000), (16, 2**28), (2**30, 2**30)])
def test_tiles_that_are_larger_than_the_image(tile):
    refused(tiff(16, 16, {322: tile[0], 323: tile[1]}), "its tiles are [0-9]+ bytes")


def test_ordinary_tiles_are_read():
    data = tiff(16, 16, {322: 256, 323: 256}, data=bytes([7]) * 256 * 256)
    assert decode(data).getpixel((3, 3)) == (7, 7, 7)


def test_floats_are_scaled_in_strips():
    levels = np.linspace(0, 1, 2000 * 1100, dtype=np.float32).reshape(2000, 1100)
    grey = np.asarray(decode(encoded(Image.fromarray(levels), "TIFF")))[..., 0]
    assert np.array_equal(grey, (levels.astype(np.float64) * 255).astype(np.uint8))


def test_repeated_scans():
    plain = encoded(photo(), "JPEG", progressive=True)
    assert num_scans(plain, 100) == 10
    assert decode(with_scans(plain, 20)).size == (64, 48)
    refused(with_scans(plain, MAX_SCANS), f"it has {MAX_SCANS + 1} scans or more, and {MAX_SCANS} are allowed")
    refused(with_scans(plain, 20), "scans", max_pixels=64 * 48)  # the larger, the fewer


def test_only_scans_of_the_image_count():
    """Neither those of thumbnails nor those of further images, and not bytes that look like one."""
    plain = encoded(photo(), "JPEG")
    thumbnail = b"\xff\xe5" + struct.pack(">H", 2 + 2000) + b"\xff\xda" * 1000
    assert num_scans(plain[:2] + thumbnail + plain[2:] + b"\xff\xda" * 1000, 100) == 1
    assert decode(plain[:2] + thumbnail + plain[2:] + b"\xff\xda" * 1000).size == (64, 48)


def test_time_is_limited_where_blocks_are_read():
    data = encoded(photo(), "PNG")
    with Image.open(TimedBytes(data, seconds=30)) as image:
        image.load()
    with pytest.raises(TooExpensive, match="more than 0 seconds"), Image.open(TimedBytes(data, seconds=0)) as image:
        image.load()


def test_a_file_of_gigabytes_is_not_read(tmp_path):
    path = tmp_path / "sparse.jpg"
    with path.open("wb") as file:
        file.truncate(10**11)
    refused(path, r"it has more than 867,108,864 bytes")
