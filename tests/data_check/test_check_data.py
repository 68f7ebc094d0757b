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
    assert report["problems"] == {
        "unreadable": 2,
        "cut short": 1,
        "oversized": 1,
        "tiny": 1,
        "blank": 0,
        "duplicate": 1,
    }
    assert (report["images"], report["unreadable"], report["skipped_by_suffix"]) == (18, 4, {".heic": 1})
    effective = report["effective"]
    assert (effective["images"], effective["distinct_images"]) == (14, 13)
    assert effective["classes"] == {"cats": 6, "dogs": 8}
    assert effective["shorter_side"] == {"smallest": 31, "5 %": 40, "median": 40, "95 %": 40, "largest": 40}
    assert f"duplicate: {odd}/dogs/same.png: equals {odd}/cats/3.jpg\n" in printed
    assert r"dogs/[/x] \x1b[31m.jpg: the file is empty" in printed
    assert "training      may start: 4 unreadable, 8 are allowed\n" in printed


@pytest.fixture
def saved(photos):
    """Save an image among the photos."""

    def save(levels, name):
        Image.fromarray(levels).save(photos / name)
        return f"{photos}/{name}"

    return save


def ramp(top, dtype, bands=()):
    return np.linspace(0, top, 64 * 64).reshape(64, 64, *bands).astype(dtype)


def test_nearly_black_and_blank_images(scfs, photos, saved, tmp_path):
    bright = np.zeros((64, 64, 3), np.uint8)
    bright[:4] = 200  # as of stars in a night sky
    for levels, name in ((bright, "cats/stars.png"), (ramp(3500, np.uint16), "cats/12bit.png")):
        saved(levels, name)
    hint = "; rescale it if it has more than 8 bits"
    blank = {
        saved(ramp(1.7, np.float32), "dogs/a.tif"): "99.9 % of its levels are at most 1 of 255" + hint,
        saved(ramp(2200, np.float32), "dogs/b.tif"): "99.9 % of its levels are at most 8 of 255" + hint,
        saved(ramp(15, np.uint8), "dogs/c.png"): "99.9 % of its levels are at most 14 of 255" + hint,
        saved(np.full((40, 40, 3), (255, 9, 0), np.uint8), "dogs/d.png"): "all pixels are of one colour",
    }
    code, printed, err = scfs("check-data", photos, "--show", 2, "--out", tmp_path / "report.json")
    assert (code, err) == (0, "")
    report = json.loads((tmp_path / "report.json").read_text())
    assert {finding["image"]: finding["detail"] for finding in report["findings"]} == blank
    assert report["problems"]["blank"] == 4
    assert report["effective"]["images"] == 18
    assert printed.count("blank: ") == 2
    assert "... and 2 more" in printed


def test_broken_links_and_folders_beside_train(scfs, photos, tmp_path):
    root = tmp_path / "set"
    photos.rename(tmp_path / "images")
    for name in ("train", "unlabeled", "2023"):
        (root / name).mkdir(parents=True)
    for name in ("cats", "dogs"):
        (tmp_path / "images" / name).rename(root / "train" / name)
    (root / "train" / "cats" / "lost.jpg").symlink_to(tmp_path / "gone.jpg")
    (root / "train" / "birds").symlink_to(tmp_path / "gone")
    out = tmp_path / "report.json"
    code, printed, _ = scfs("check-data", root, "--show", 1, "--out", out)
    assert code == 0
    assert "2 missing (broken link)" in printed
    assert "not used      beside train: 2023, 1 more\n" in printed
    report = json.loads(out.read_text())
    assert report["skipped_by_suffix"] == {"missing (broken link)": 2}
    assert report["unused_folders"] == ["2023", "unlabeled"]
    assert "not used" not in scfs("check-data", root / "train")[1]


def test_numbers_and_names_in_words(scfs, photos, tmp_path):
    assert "classes       2, 6 images each\n" in scfs("check-data", photos)[1]
    for i in range(5):
        (photos / "cats" / f"{i}.jpg").unlink()
    (photos / "dogs" / "a\nb\tc.jpg").write_bytes(b"")
    (photos / "dogs").rename(photos / "big\ndogs")
    printed = scfs("check-data", photos)[1]
    assert r"big\ndogs/a\nb\tc.jpg: the file is empty" in printed
    assert r"classes       2, from 1 image (cats) to 6 (big\ndogs)" in printed
    (tmp_path / "one").mkdir()
    (photos / "cats" / "5.jpg").rename(tmp_path / "one" / "5.jpg")
    assert "1 image of " in scfs("check-data", tmp_path / "one")[1]


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
