"""Bytes become upright RGB images, or `Unreadable`: nothing in between, and no warnings (which are errors in tests)."""

import io
import pickle
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from scfs.data.decode import Unreadable, decode

HEIGHT, WIDTH = 40, 56
# How an upright image is stored, by EXIF orientation: 6 means that the viewer must rotate it clockwise.
STORED = {
    1: lambda pixels: pixels,
    2: lambda pixels: pixels[:, ::-1],
    3: lambda pixels: pixels[::-1, ::-1],
    4: lambda pixels: pixels[::-1],
    5: lambda pixels: pixels.transpose(1, 0, 2),
    6: lambda pixels: np.rot90(pixels, 1),
    7: lambda pixels: pixels[::-1, ::-1].transpose(1, 0, 2),
    8: lambda pixels: np.rot90(pixels, -1),
}


@pytest.fixture(scope="module")
def photo():
    """A gradient with some noise: every corner differs."""
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    noise = np.random.default_rng(0).integers(0, 9, (HEIGHT, WIDTH, 3))
    return Image.fromarray((np.stack([x * 4, y * 5, (x + y) * 2], -1) + noise).astype(np.uint8))


def encoded(image, kind, **options):
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def max_difference(ours, theirs):
    return np.abs(np.asarray(ours).astype(int) - np.asarray(theirs).astype(int)).max()


@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF", "PPM", "WEBP"])
def test_lossless_formats_are_exact(photo, kind):
    image = decode(encoded(photo, kind, **({"lossless": True} if kind == "WEBP" else {})))
    assert image.mode == "RGB"
    assert max_difference(image, photo) == 0


def test_a_file_and_its_bytes_are_the_same(photo, tmp_path):
    path = tmp_path / "photo.png"  # the suffix does not matter
    path.write_bytes(encoded(photo, "JPEG"))
    assert decode(path) == decode(str(path)) == decode(path.read_bytes())


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation(photo, kind, orientation):
    """Stored as the camera held it, decoded as the photographer saw it."""
    stored = Image.fromarray(np.ascontiguousarray(STORED[orientation](np.asarray(photo))))
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"WEBP": {"lossless": True}, "JPEG": {"quality": 100, "subsampling": 0}}.get(kind, {})
    image = decode(encoded(stored, kind, exif=exif, **options))
    assert image.size == photo.size
    assert max_difference(image, photo) <= 6
    assert 0x0112 not in image.getexif()


@pytest.mark.parametrize("value", [0, 9, 4711])
def test_an_impossible_orientation_is_ignored(photo, value):
    exif = Image.Exif()
    exif[0x0112] = value
    assert max_difference(decode(encoded(photo, "PNG", exif=exif)), photo) == 0


def test_damaged_exif_does_not_matter(photo):
    plain = encoded(photo, "JPEG")
    damaged = plain[:2] + b"\xff\xe1\x00\x10Exif\0\0II*\0\xff\xff\xff" + plain[2:]
    assert decode(damaged).tobytes() == decode(plain).tobytes()


def test_sixteen_bits_are_scaled():
    levels = np.linspace(0, 65535, 256 * 4).astype(np.uint16).reshape(4, 256)
    image = decode(encoded(Image.fromarray(levels), "PNG"))
    assert max_difference(np.asarray(image)[..., 0], levels >> 8) == 0
    assert len(np.unique(np.asarray(image))) == 256  # not clipped


def test_twelve_bits_in_sixteen_are_scaled():
    """As cameras of microscopes and factories write them: as 16 bits they would be nearly black."""
    levels = np.linspace(0, 4095, 256 * 4).astype(np.uint16).reshape(4, 256)
    image = decode(encoded(Image.fromarray(levels), "PNG"))
    assert max_difference(np.asarray(image)[..., 0], levels >> 4) == 0


@pytest.mark.parametrize(("top", "dtype"), [(65535, np.int32), (2**30, np.int32), (1.0, np.float32), (255, np.float32)])
def test_wide_grey_is_scaled(top, dtype):
    levels = (np.linspace(0, top, 64).reshape(8, 8)).astype(dtype)
    grey = np.asarray(decode(encoded(Image.fromarray(levels), "TIFF")))[..., 0].ravel()
    assert grey[0] == 0
    assert grey[-1] in (254, 255)
    assert max_difference(grey, np.linspace(0, 255, 64)) <= 1


def test_palette_with_transparency(photo):
    palette = photo.quantize(16)
    for transparency in (3, bytes(range(16))):
        image = decode(encoded(palette, "PNG", transparency=transparency))
        assert max_difference(image, palette.convert("RGB")) == 0


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_transparency_is_dropped(photo, mode):
    clear = photo.convert(mode)
    clear.putalpha(7)
    assert (
        max_difference(decode(encoded(clear, "PNG")), photo.convert("L" if mode == "LA" else "RGB").convert("RGB")) == 0
    )


def test_cmyk(photo):
    assert max_difference(decode(encoded(photo.convert("CMYK"), "TIFF")), photo) <= 1
    image = decode(encoded(photo.convert("CMYK"), "JPEG", quality=95))
    assert np.abs(np.asarray(image).astype(int) - np.asarray(photo)).mean() < 5


def test_one_bit():
    checks = Image.fromarray((np.indices((8, 8)).sum(0) % 2).astype(np.bool_))
    assert np.unique(np.asarray(decode(encoded(checks, "PNG")))).tolist() == [0, 255]


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG"])
def test_an_animation_gives_its_first_frame(kind):
    frames = [Image.new("RGB", (8, 6), color) for color in ("red", "blue", "lime")]
    data = encoded(frames[0], kind, save_all=True, append_images=frames[1:], duration=10)
    assert decode(data).getpixel((3, 3))[0] > 240
    assert decode(data).getpixel((3, 3))[2] < 20


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("JPEG", {}),
        ("JPEG", {"progressive": True}),
        ("PNG", {}),
        ("WEBP", {}),
        ("GIF", {}),
        ("BMP", {}),
        ("TIFF", {"compression": "tiff_lzw"}),
    ],
)
def test_a_truncated_image_is_complete_or_unreadable(photo, kind, options):
    data = encoded(photo, kind, **options)
    whole, refused = decode(data).tobytes(), 0
    for length in [*range(0, len(data), max(1, len(data) // 40)), *range(len(data) - 30, len(data))]:
        try:
            assert decode(data[:length]).tobytes() == whole, length  # only what comes after the pixels is missing
        except Unreadable:
            refused += 1
    assert refused >= 40


@pytest.mark.parametrize("missing", [1, 4, 12, 13, 20])
def test_a_png_without_its_end_is_refused(photo, missing):
    """Pillow reads these without complaint."""
    with pytest.raises(Unreadable, match="cut short"):
        decode(encoded(photo, "PNG")[:-missing])


def test_bytes_after_the_end_do_not_matter(photo):
    assert decode(encoded(photo, "PNG") + b"\0" * 100_000) == photo


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF", "TIFF", "BMP"])
def test_flipped_bytes_never_raise_anything_else(photo, kind):
    data, random, unreadable = encoded(photo, kind), np.random.default_rng(1), 0
    for _ in range(60):
        broken = bytearray(data)
        for position in random.integers(0, min(len(data), 600), 4):
            broken[position] = random.integers(256)
        try:
            assert decode(bytes(broken), max_pixels=10**6).mode == "RGB"
        except Unreadable:
            unreadable += 1
    assert unreadable > 0


def png_header(width, height):
    body = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + body + struct.pack(">I", zlib.crc32(body))


@pytest.mark.parametrize("size", [(10_000, 9_500), (12_000, 10_000), (60_000, 60_000)])
def test_large_images_are_refused_by_their_header(size):
    """The first is below the cap but above where Pillow warns: it must fail for its missing pixels, silently."""
    data = png_header(*size) + b"\0\0\0\0IEND\xaeB`\x82"
    with pytest.raises(Unreadable) as caught:
        decode(data)
    assert ("100000000 pixels" in caught.value.reason) == (size != (10_000, 9_500))
    with pytest.raises(Unreadable) as caught:
        decode(data, max_pixels=10**10)  # where Pillow refuses, our cap still decides
    assert "pixels" not in caught.value.reason


def test_the_cap_is_inclusive(photo):
    data = encoded(photo, "PNG")
    assert decode(data, max_pixels=HEIGHT * WIDTH) == photo
    with pytest.raises(Unreadable, match=f"{WIDTH} x {HEIGHT} is more than {HEIGHT * WIDTH - 1} pixels"):
        decode(data, max_pixels=HEIGHT * WIDTH - 1)


def test_pillows_own_limit_is_left_as_it_was(photo):
    before = Image.MAX_IMAGE_PIXELS
    decode(encoded(photo, "PNG"))
    assert Image.MAX_IMAGE_PIXELS == before is not None


@pytest.mark.parametrize("data", [b"", b"no image", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n", b"<svg/>"])
def test_not_an_image(data):
    with pytest.raises(Unreadable) as caught:
        decode(data, name="a/b.jpg")
    assert str(caught.value).startswith("Cannot read image a/b.jpg: ")
    assert "0x" not in str(caught.value)  # equal in every run


def test_missing_file(tmp_path):
    with pytest.raises(Unreadable, match="No such file"):
        decode(tmp_path / "gone.jpg")
    with pytest.raises(Unreadable, match="directory"):
        decode(tmp_path)


def test_unreadable_survives_pickling():
    error = pickle.loads(pickle.dumps(Unreadable("a.jpg", "why")))
    assert (error.name, error.reason, str(error)) == ("a.jpg", "why", "Cannot read image a.jpg: why")
    assert str(Unreadable("text")) == "text"  # as torch rebuilds a worker's exception
