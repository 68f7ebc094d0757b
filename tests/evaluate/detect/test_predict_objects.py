import json

import pytest
from PIL import Image
from pycocotools.coco import COCO

from scfs import extras
from scfs.evaluate.detect.scoring import Found
from scfs.visualize.report.sections import detections as sections

QUICK = ("--workers", 0, "--channels", 16, "--regions", 8, "--batch_size", 2, "--sizes", 64, "--steps", 3)


@pytest.fixture
def detector(scfs, tmp_path):
    folder = tmp_path / "detector"
    code, _, err = scfs("detect", "random:resnet10_half", "--data", "scenes:6,4", *QUICK, "--show", 2, "--out", folder)
    assert code == 0, err
    with Image.open(folder / "detections.png") as picture:
        assert picture.width > 300
    return folder


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # of pycocotools, in NumPy 2
def test_objects_are_written_as_coco_and_drawn(scfs, detector, photos, tmp_path):
    out = tmp_path / "found.json"
    (photos / "cats" / "broken.jpg").write_bytes(b"no photo")
    code, text, err = scfs("predict", detector, photos, out, "--show", 2)
    assert code == 0, err
    assert "12 images in" in text
    assert "broken.jpg" in text
    data = COCO(str(out))
    assert {image["file_name"].split("/")[-1] for image in data.imgs.values()} == {f"{i}.jpg" for i in range(6)}
    assert len(data.imgs) == 12
    assert {category["name"] for category in data.cats.values()} > {"striped disc", "dotted disc"}
    for each in data.anns.values():
        image = data.imgs[each["image_id"]]
        x, y, width, height = each["bbox"]
        assert 0 <= x <= x + width <= image["width"] + 1e-3
        assert 0 <= y <= y + height <= image["height"] + 1e-3
        assert 0 < each["score"] <= 1
        assert data.annToMask(each).shape == (image["height"], image["width"])
    assert out.with_suffix(".png").exists()
    assert scfs("predict", detector, photos, out)[0] == 2  # never overwritten


def test_a_checkpoint_of_a_detector_finds_objects_too(scfs, detector, photos):
    (photos / "notes.heic").write_bytes(b"")
    code, text, err = scfs("predict", detector / "last.pt", photos)
    assert (code, err) == (0, "")
    assert "0.jpg: " in text
    assert "1 file skipped because of its suffix (1 .heic)" in text


@pytest.mark.parametrize("command", ["predict", "report"])
def test_the_extra_of_masks_is_named(scfs, detector, photos, monkeypatch, command):
    monkeypatch.setattr(extras, "missing_packages", lambda extra: ["faster_coco_eval"] if extra == "detect" else [])
    code, _, err = scfs(command, detector, *([photos] if command == "predict" else []))
    assert code == 2
    assert err.startswith("scfs: A detector of masks needs faster_coco_eval")
    assert err.count("\n") == 1


def test_a_report_without_a_readable_photo_has_no_detections(scfs, detector, monkeypatch):
    monkeypatch.setattr(sections, "find_objects", lambda *_, **__: Found([], [], [], ["every one"]))
    assert scfs("report", detector)[0] == 0
    assert "<h2>Detections" not in (detector / "report" / "index.html").read_text()


def test_a_table_is_refused(scfs, detector, photos, tmp_path):
    code, _, err = scfs("predict", detector, photos, tmp_path / "found.csv")
    assert (code, "name the file .json" in err) == (2, True)


def test_a_detector_has_a_report_and_is_compared(scfs, detector, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = scfs("report", detector)
    assert code == 0, err
    page = (detector / "report" / "index.html").read_text()
    for expected in ("box AP50", "Curves", "Detections", "detect.detector", "mask-rcnn-fpn"):
        assert expected in page
    code, out, err = scfs("compare", detector)
    assert code == 0, err
    assert "box AP50" in out


def test_an_unfinished_detector_is_named(scfs, detector, photos):
    (detector / "last.pt").unlink()
    code, _, err = scfs("predict", detector, photos)
    assert code == 2
    assert "same" in err
    assert len(err.strip().splitlines()) == 1
    assert scfs("report", detector)[0] == 0
    assert "Unfinished" in (detector / "report" / "index.html").read_text()


def test_results_are_json(detector):
    [entry] = json.loads((detector / "results.json").read_text())
    assert set(entry["details"]) == {"box", "mask"}


@pytest.mark.parametrize("flags", [("--network", "student"), ("--batch_size", 4)])
def test_settings_of_classifiers_are_refused(scfs, detector, photos, flags):
    code, _, err = scfs("predict", detector, photos, *flags)
    assert code == 2
    assert err.startswith(f"scfs: {flags[0]} {flags[1]} has no effect on a detector")
