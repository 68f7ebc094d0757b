"""`scfs check-data`: every kind of problem is found, named and counted, and the exit code is that of training."""

import csv
import io
import json
import tarfile

import numpy as np
import pytest
from PIL import Image

from scfs.data.sources import open_train
from scfs.data_check.scan import scan


def encoded(image, kind="JPEG", **options):
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def photo(seed, size=(48, 40)):
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8))


@pytest.fixture
def odd(photos):
    """Twelve good photos, and one of each problem."""
    whole = encoded(photo(1))
    files = {
        "cats/cut.jpg": whole[: len(whole) // 2],
        "cats/text.jpg": b"no image",
        "cats/large.png": encoded(Image.new("1", (2000, 1000)), "PNG"),
        "dogs/tiny.png": encoded(photo(2, (100, 31)), "PNG"),
        "dogs/same.png": encoded(Image.open(photos / "cats" / "3.jpg"), "PNG"),
        "dogs/phone.HEIC": b"",
        "dogs/[/x] \x1b[31m.jpg": b"",
    }
    for name, content in files.items():
        (photos / name).parent.mkdir(parents=True, exist_ok=True)
        (photos / name).write_bytes(content)
    return photos


FOUND = {
    ("unreadable", "cats/text.jpg", "it is not an image of a known format"),
    ("unreadable", "dogs/[/x] \x1b[31m.jpg", "the file is empty"),
    ("cut short", "cats/cut.jpg", "the file is cut short"),
    ("oversized", "cats/large.png", "2000 x 1000 is more than 1000000 pixels"),
    ("tiny", "dogs/tiny.png", "100 x 31 pixels"),
}


@pytest.mark.parametrize("workers", [0, 2])
def test_every_problem_is_reported(scfs, odd, tmp_path, workers):
    out = tmp_path / "report.json"
    code, printed, err = scfs("check-data", odd, "--max_megapixels", 1, "--workers", workers, "--out", out)
    assert (code, err) == (0, "")
    report = json.loads(out.read_text())
    expected = {(problem, f"{odd}/{name}", detail) for problem, name, detail in FOUND}
    expected |= {("duplicate", f"{odd}/dogs/same.png", f"equals {odd}/cats/3.jpg")}
    assert {tuple(finding.values()) for finding in report["findings"]} == expected
    assert report["problems"] == {"unreadable": 2, "cut short": 1, "oversized": 1, "tiny": 1, "duplicate": 1}
    assert (report["images"], report["unreadable"], report["skipped_by_suffix"]) == (18, 4, {".heic": 1})
    effective = report["effective"]
    assert (effective["images"], effective["distinct_images"]) == (14, 13)
    assert effective["classes"] == {"cats": 6, "dogs": 8}
    assert effective["shorter_side"] == {"smallest": 31, "5 %": 40, "median": 40, "95 %": 40, "largest": 40}
    assert f"duplicate: {odd}/dogs/same.png: equals {odd}/cats/3.jpg\n" in printed
    assert r"dogs/[/x] \x1b[31m.jpg: the file is empty" in printed
    assert "training      may start: 4 unreadable, 8 are allowed\n" in printed


def test_a_csv_file(scfs, odd, tmp_path):
    out = tmp_path / "report.csv"
    assert scfs("check-data", odd, "--max_megapixels", 1, "--out", out)[0] == 0
    with out.open(newline="") as file:
        rows = {tuple(row.values()) for row in csv.DictReader(file)}
    assert {(problem, f"{odd}/{name}", detail) for problem, name, detail in FOUND} < rows
    before = out.read_text()
    code, _, err = scfs("check-data", odd, "--out", out)
    assert (code, out.read_text()) == (2, before)
    assert "exists and is not overwritten" in err
    assert scfs("check-data", odd, "--out", tmp_path / "report.txt")[0] == 2


def test_the_exit_code_is_that_of_training(scfs, photos, tiny_recipe, tmp_path):
    for i in range(10):
        (photos / "cats" / f"bad{i}.jpg").write_bytes(b"no image")
    words = ("pretrain", tiny_recipe, "--data.source", photos, "--run.folder")
    assert scfs("check-data", photos)[0] == 0  # ten of 22: less than half
    assert scfs(*words, tmp_path / "first")[0] == 0
    for i in range(10, 14):
        (photos / "cats" / f"bad{i}.jpg").write_bytes(b"no image")
    code, printed, err = scfs("check-data", photos)
    assert code == 2
    assert err == (
        f"scfs: 14 of 26 images of {photos} cannot be read, more than the 10 with which training starts; repair or "
        "remove them.\n"
    )
    assert "... and 9 more" in printed
    assert scfs(*words, tmp_path / "second")[0] == 2


def shard(photos, tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for path in sorted(photos.rglob("*.jpg")):
            tar.add(path, path.name)
    return tmp_path / "a.tar"


def listed(photos, tmp_path):
    paths = sorted(photos.rglob("*.jpg"))
    (tmp_path / "list.txt").write_text("".join(f"{path}\n" for path in paths))
    return tmp_path / "list.txt"


def parquet(photos, tmp_path):
    pyarrow, writer = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = pyarrow.table({"image": [path.read_bytes() for path in sorted(photos.rglob("*.jpg"))]})
    writer.write_table(table, tmp_path / "a.parquet")
    return tmp_path / "a.parquet"


def coco(photos, tmp_path):
    (tmp_path / "coco" / "train2017").mkdir(parents=True)
    for i, path in enumerate(sorted(photos.rglob("*.jpg"))):
        path.rename(tmp_path / "coco" / "train2017" / f"{i}.jpg")
    return f"coco:{tmp_path / 'coco'}"


def voc(photos, tmp_path):
    year = tmp_path / "VOCdevkit" / "VOC2007"
    for name in ("JPEGImages", "ImageSets/Main"):
        (year / name).mkdir(parents=True)
    for i, path in enumerate(sorted(photos.rglob("*.jpg"))):
        path.rename(year / "JPEGImages" / f"{i}.jpg")
    (year / "ImageSets" / "Main" / "trainval.txt").write_text("".join(f"{i}\n" for i in range(12)))
    return f"voc:{tmp_path}"


@pytest.mark.parametrize("kind", [shard, listed, parquet, coco, voc, lambda *_: "scenes:12,4"])
def test_every_kind_of_source(scfs, photos, tmp_path, kind):
    code, printed, err = scfs("check-data", kind(photos, tmp_path))
    assert (code, err) == (0, "")
    assert "images        12, of which 12 distinct\n" in printed


def test_groups_of_equal_images(photos):
    first, second = (photos / "cats" / f"{i}.jpg" for i in (1, 2))
    for number, path in enumerate((first, first, second)):
        (photos / "dogs" / f"copy{number}.jpg").write_bytes(path.read_bytes())
    source = open_train(str(photos))
    counts = []
    found = scan(source, workers=0, on_images=counts.append)
    names = {source.name(a): [source.name(b) for b in others] for a, others in found.duplicates().items()}
    copies = [str(photos / "dogs" / f"copy{i}.jpg") for i in range(3)]
    assert names == {str(first): copies[:2], str(second): copies[2:]}
    assert sum(counts) == len(source) == 15
