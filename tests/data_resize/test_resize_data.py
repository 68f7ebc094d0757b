"""`scfs resize-data`: smaller copies in the same folders, made once, with nothing lost or overwritten."""

import io

import numpy as np
import pytest
from PIL import Image

from scfs.data.decode import decode
from scfs.data_resize import copies
from scfs.data_resize.copies import reduced
from scfs.runs.files import write_atomic


def picture(width, height, seed=0):
    """A picture without fine detail, as most photos are at this size."""
    pixels = np.random.default_rng(seed).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    return Image.fromarray(pixels).resize((width, height), Image.Resampling.BICUBIC)


def encoded(image, **options):
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=95, **options)
    return buffer.getvalue()


@pytest.fixture
def large(tmp_path):
    folder = tmp_path / "large"
    turned = Image.Exif()
    turned[0x0112] = 6
    files = {
        "train/cats/wide.jpg": encoded(picture(1280, 960)),
        "train/cats/turned.JPEG": encoded(picture(1280, 960), exif=turned),
        "val/cats/small.jpg": encoded(picture(90, 60)),
        "val/dogs/cut.jpg": encoded(picture(400, 300))[:2000],
        "val/dogs/notes.txt": b"",
    }
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    picture(300, 200).save(folder / "val" / "dogs" / "drawn.png")
    return folder


def written(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("workers", [0, 2])
def test_copies_have_the_folders_and_the_content_of_the_images(scfs, large, tmp_path, workers):
    out = tmp_path / "small"
    code, printed, err = scfs("resize-data", large, out, "--side", 64, "--workers", workers)
    assert (code, err) == (0, "")
    assert written(out) == {
        ".scfs-resized.json",
        *("train/cats/wide.jpg", "train/cats/turned.JPEG", "val/cats/small.jpg", "val/dogs/drawn.png.jpg"),
    }
    sizes = {name: decode(out / name).size for name in written(out) if name.endswith(("jpg", "JPEG"))}
    assert sizes == {
        "train/cats/wide.jpg": (85, 64),
        "train/cats/turned.JPEG": (64, 85),  # upright
        "val/cats/small.jpg": (90, 60),
        "val/dogs/drawn.png.jpg": (96, 64),
    }
    assert (out / "val/cats/small.jpg").read_bytes() == (large / "val/cats/small.jpg").read_bytes()
    for name in ("train/cats/wide.jpg", "train/cats/turned.JPEG"):
        ours, theirs = (np.asarray(image, int) for image in (decode(out / name), reduced(decode(large / name), 64)))
        assert abs(ours - theirs).mean() < 2
    assert "cut.jpg: the file is cut short" in printed
    assert "1 file skipped because of its suffix (1 .txt)" in printed
    assert f"{out}: 3 resized to 64 pixels on the shorter side, 1 copied as they are, 1 unreadable" in printed
    assert f"scfs pretrain {out}" in printed


def test_an_interrupted_command_continues(scfs, large, tmp_path, monkeypatch):
    out, command = tmp_path / "small", ("resize-data", large, tmp_path / "small", "--side", 64, "--workers", 0)

    def stop_at_png(path, write):
        if path.name == "drawn.png.jpg":
            raise KeyboardInterrupt
        write_atomic(path, write)

    with monkeypatch.context() as patch:
        patch.setattr(copies, "write_atomic", stop_at_png)
        assert scfs(*command)[0] == 130
    before = {name: (out / name).stat().st_mtime_ns for name in written(out)}
    assert len(before) == 4
    code, printed, _ = scfs(*command)
    assert code == 0
    assert f"{out}: 1 resized to 64 pixels on the shorter side, 3 there before, 1 unreadable" in printed
    assert {name: (out / name).stat().st_mtime_ns for name in before} == before


def test_copies_of_images_with_similar_names_do_not_overwrite_each_other(scfs, tmp_path):
    colours = {"a.png": (255, 0, 0), "a.png.jpg": (0, 0, 255), "a.jpg": (0, 255, 0), "b.png": (9, 9, 9)}
    (tmp_path / "large").mkdir()
    for name, colour in colours.items():
        Image.new("RGB", (128, 128), colour).save(tmp_path / "large" / name)
    assert scfs("resize-data", tmp_path / "large", tmp_path / "small", "--side", 64)[0] == 0
    names = {"a.png": "a.png.resized.jpg", "b.png": "b.png.jpg"}
    for name, colour in colours.items():
        copy = decode(tmp_path / "small" / names.get(name, name))
        assert abs(np.asarray(copy, int) - colour).max() < 8
    assert len(written(tmp_path / "small")) == 5


def test_bad_input_is_one_sentence(scfs, large, tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.jpg").write_bytes(b"mine")
    (tmp_path / "none").mkdir()
    (large / "link").symlink_to(large / "val")
    assert scfs("resize-data", large, tmp_path / "small", "--side", 64)[0] == 0
    for arguments, sentence in {
        (tmp_path / "missing", tmp_path / "a"): "missing is not a folder; give a folder of images.",
        ("scenes", tmp_path / "a"): "scenes is not a folder; give a folder of images.",
        (tmp_path / "none", tmp_path / "a"): "No images under",
        (large, large): "whose images would then include the copies; choose another folder.",
        (large, large / "small"): "whose images would then include the copies; choose another folder.",
        (large, large / "link" / "small"): "whose images would then include the copies; choose another folder.",
        (large, tmp_path / "other"): "other exists and has no copies of scfs resize-data; choose another name.",
        (large, large / "train/cats/wide.jpg"): "choose another folder.",
        (large, tmp_path / "other" / "mine.jpg"): "choose another name.",
        (large, tmp_path / "small", "--side", 128): "small has copies with side 64, not 128; choose another name.",
        (large / "val", tmp_path / "small", "--side", 64): "small has copies with source",
        (large, tmp_path / "a", "--side", 2): "Setting 'side' cannot be '2'; it should be greater than or equal to 8.",
        (large,): "needs the folder of the copies",
    }.items():
        code, printed, err = scfs("resize-data", *arguments)
        assert (code, printed) == (2, ""), sentence
        assert err.count("\n") == 1
        assert sentence in err
    assert not (tmp_path / "a").exists()
    assert (tmp_path / "other" / "mine.jpg").read_bytes() == b"mine"


@pytest.mark.parametrize("workers", [0, 1])
def test_a_full_disk_is_one_sentence(scfs, large, tmp_path, workers, monkeypatch):
    def full(path, _):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(copies, "write_atomic", full)  # workers are forks
    code, _, err = scfs("resize-data", large, tmp_path / "small", "--side", 64, "--workers", workers)
    assert code == 2
    assert err.endswith(f"to {tmp_path / 'small'}: No space left on device.\n")


@pytest.mark.parametrize(
    ("min_side", "size"), [(0, (1280, 960)), (961, (1280, 960)), (480, (640, 480)), (90, (160, 120))]
)
def test_a_jpeg_is_decoded_no_larger_than_needed(min_side, size):
    data = encoded(picture(1280, 960))
    image = decode(data, min_side=min_side)
    assert image.size == size
    full = decode(data).resize(size, Image.Resampling.BOX)
    assert abs(np.asarray(image, int) - np.asarray(full, int)).mean() < 2
