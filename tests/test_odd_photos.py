"""A folder of photos of every kind, from the first dry run to predictions: bad ones are named, the others used."""

import csv
import io

import numpy as np
import pytest
from PIL import Image

import scfs as package
from scfs.data.scenes import render_scene

FAST = ("--workers", 0)
BAD = {
    "cut.jpg": "the file is cut short",
    "cut.png": "the file is cut short",
    "empty.jpg": "the file is empty",
    "text.jpg": "it is not an image of a known format",
}


def scene(index):
    return Image.fromarray(render_scene(0, "train", index).image).resize((72, 56))


def encoded(image, kind, **options):
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def files():
    """Encoded photos by name; those of `BAD` cannot be read, and two have suffixes that are not read."""
    images = map(scene, range(100))
    rotated = Image.Exif()
    rotated[0x0112] = 6  # to be turned clockwise by the viewer
    upright, photo = next(images), next(images)
    grey = np.asarray(next(images).convert("L"))
    alpha = next(images).convert("RGBA")
    alpha.putalpha(Image.fromarray(grey))
    jpeg, png = encoded(next(images), "JPEG"), encoded(next(images), "PNG")
    return {
        **{f"plain{i}.jpg": encoded(next(images), "JPEG") for i in range(6)},
        "upright.jpg": encoded(upright, "JPEG", quality=95, subsampling=0),
        "rotated.jpg": encoded(
            upright.transpose(Image.Transpose.ROTATE_90), "JPEG", quality=95, subsampling=0, exif=rotated
        ),
        "cmyk.jpg": encoded(photo.convert("CMYK"), "JPEG"),
        "sixteen.png": encoded(Image.fromarray(grey.astype(np.uint16) * 257), "PNG"),
        "alpha.png": encoded(alpha, "PNG"),
        "palette.png": encoded(photo.quantize(16), "PNG", transparency=3),
        "grey.jpg": encoded(Image.fromarray(grey), "JPEG"),
        "photo.webp": encoded(photo, "WEBP"),
        "animation.gif": encoded(photo, "GIF", save_all=True, append_images=[next(images), next(images)]),
        "photo.tiff": encoded(photo, "TIFF"),
        "photo.bmp": encoded(photo, "BMP"),
        "dot.png": encoded(Image.new("RGB", (1, 1), "red"), "PNG"),
        "line.png": encoded(Image.new("RGB", (1, 5000), "green"), "PNG"),
        "cut.jpg": jpeg[: len(jpeg) // 2],
        "cut.png": png[: len(png) // 2],
        "empty.jpg": b"",
        "text.jpg": b"no image\n",
        "phone.HEIC": b"\0\0\0\x18ftypheic",
        "camera.CR2": b"II*\0",
    }


@pytest.fixture
def odd(tmp_path):
    folder = tmp_path / "odd"
    folder.mkdir()
    for name, content in files().items():
        (folder / name).write_bytes(content)
    return folder


def test_a_walk(scfs, tiny_recipe, photos, odd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    num_good = len(files()) - len(BAD) - 2
    words = ("pretrain", tiny_recipe, "--data.source", odd, "--optim.epochs", 3)

    def walk(*args):
        code, out, err = scfs(*args)
        assert (code, err) == (0, ""), args
        return out

    assert "2 files skipped because of their suffix (1 .heic, 1 .cr2)" in walk(*words, "--dry-run")
    trained = walk(*words, "--run.folder", "run")
    assert "2 files skipped because of their suffix (1 .heic, 1 .cr2)" in trained
    named = (tmp_path / "run" / "unreadable.txt").read_text()
    assert set(named.splitlines()) == {f"Cannot read image {odd / name}: {why}" for name, why in BAD.items()}
    assert trained.count("Unreadable, replaced by the next image: ") == len(BAD)

    reported = walk("report", "run")
    embedded = walk("embed", "run", odd, "features.npy", *FAST)
    walk("linear", "run", "--data", photos, "--cached", "--epochs", 1, *FAST)
    predicted = walk("predict", "run", odd, "classes.csv", *FAST)
    for out in (reported, embedded, predicted):
        for name, why in BAD.items():
            assert f"Unreadable, left out: Cannot read image {odd / name}: {why}\n" in out
    assert "2 files skipped because of their suffix (1 .heic, 1 .cr2)" in embedded
    assert "2 files skipped because of their suffix (1 .heic, 1 .cr2)" in predicted
    assert np.load("features.npy").shape == (num_good, 256)
    with (tmp_path / "classes.csv").open() as file:
        assert len(list(csv.DictReader(file))) == num_good
    walk("export", "run", "backbone.safetensors")
    check_upright(odd)


def check_upright(odd):
    """A photo stored on its side has the features of the upright one, from a command and in Python."""
    rows = (odd.parent / "features.txt").read_text().splitlines()
    features = np.load("features.npy")
    upright, rotated = (features[rows.index(str(odd / name))] for name in ("upright.jpg", "rotated.jpg"))
    images = package.load_backbone("backbone.safetensors").load_images([odd / "upright.jpg", odd / "rotated.jpg"])
    np.testing.assert_allclose(rotated, upright, atol=0.05 * np.abs(upright).max())
    assert (images[0] - images[1]).abs().max() < 0.3  # of about 4.5 from black to white


def test_a_folder_of_other_files(scfs, tiny_recipe, tmp_path):
    (tmp_path / "phone").mkdir()
    for name in ("a.HEIC", "b.heic", ".hidden.mov", "c.cr2"):
        (tmp_path / "phone" / name).touch()
    code, _, err = scfs("pretrain", tiny_recipe, "--data.source", tmp_path / "phone", "--run.folder", tmp_path / "run")
    assert code == 2
    assert err.endswith(".pgm); convert its 2 .heic files to one of these.\n")
