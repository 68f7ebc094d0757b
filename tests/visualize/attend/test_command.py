import json
import re

import numpy as np
import pytest
from PIL import Image

from scfs.visualize.attend.picture import Panel, colour_scales, save_attention_picture
from scfs.visualize.queries import Example

RANDOM = "random:resnet10_half"
SMALL = ("--size", 64, "--query_size", 32)


def size_of(path):
    with Image.open(path) as image:
        return image.size


@pytest.mark.parametrize("show", ["views", "jigsaw", "other", "components"])
def test_pictures_of_two_runs_have_more_columns(scfs, trained, tmp_path, show):
    paths = [tmp_path / "one.png", tmp_path / "two.png"]
    for path, targets in zip(paths, ([trained], [trained, RANDOM]), strict=True):
        views = ("--views", 2) if show in ("views", "other") else ()
        flags = ("--data", "scenes:12,8", "--show", show, "--count", 2, *views, "--out", path, *SMALL)
        code, out, err = scfs("attend", *targets, *flags)
        assert (code, err) == (0, "")
        assert str(path) in out.replace("\n", "")
    (narrow, height), (wide, same_height) = map(size_of, paths)
    assert wide > narrow
    assert height == same_height


def test_runs_with_scales_of_their_own_have_a_bar_each(scfs, tmp_path):
    paths = [tmp_path / "shared.svg", tmp_path / "own.svg"]
    for path in paths:
        flags = ("--data", "scenes:4,4", "--count", 2, "--scales", path.stem, "--names", "first", "second")
        code, _, err = scfs("attend", RANDOM, RANDOM, *flags, "--out", path, *SMALL)
        assert (code, err) == (0, "")
    bars = [path.read_text().count("<!-- cosine, layer4") for path in paths]
    assert bars == [1, 2]


def test_the_own_images_of_a_run_and_a_picture_in_its_folder(scfs, trained):
    code, out, _ = scfs("attend", trained, "--count", 1, *SMALL)
    assert code == 0
    assert "own images, scenes:12,8" in out
    assert size_of(trained / "attend-views.png")[0] > 500


@pytest.mark.parametrize("suffix", ["svg", "pdf"])
def test_image_files_a_box_and_several_layers(scfs, photos, tmp_path, suffix):
    path = tmp_path / f"box.{suffix}"
    images = sorted(photos.glob("*/*.jpg"))[:2]
    flags = ("--images", *images, "--show", "box", "--box", 0.2, 0.1, 0.6, 0.9, "--layers", "layer1", "layer4")
    code, _, err = scfs("attend", RANDOM, *flags, "--out", path, *SMALL)
    assert (code, err) == (0, "")
    content = path.read_bytes()
    assert content.startswith(b"%PDF" if suffix == "pdf" else b"<?xml")


def test_another_image_is_of_the_same_class(scfs, photos, tmp_path):
    (photos / "dogs" / "0.jpg").write_bytes(b"not an image")
    flags = ("--data", photos, "--show", "other", "--count", 12, "--views", 1, "--out", tmp_path / "x.png", *SMALL)
    code, out, _ = scfs("attend", RANDOM, *flags)
    assert code == 0
    assert "dogs/0.jpg" in out.replace("\n", "")  # left out, and named


def test_scores_are_readable_at_80_columns(scfs, trained, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = scfs("attend", trained, "--score", "--views", 2, "--scale", 0.05, *SMALL)
    lines = [line for line in out.splitlines() if line.startswith(("│", "┃"))]
    rows = [[cell.strip() for cell in re.split("[│┃]", line)[1:-1]] for line in lines]
    assert rows[0] == ["", "AUROC %", "95 % interval", "pointing %", "95 % interval"]
    named = [row for row in rows[1:] if row[1]]  # others continue a name
    assert len(named) == 10
    assert all(re.fullmatch(r"[\d.]+-[\d.]+", row[column]) for row in named for column in (2, 4))


def test_scores_are_recorded_for_each_run(scfs, trained):
    code, out, err = scfs("attend", trained, RANDOM, "--score", "--views", 2, "--scale", 0.05, *SMALL)
    assert (code, err) == (0, "")
    assert out.count("object queries") == 2
    [result] = json.loads((trained / "results.json").read_text())
    values = {metric["name"]: metric["value"] for metric in result["metrics"]}
    rows = [*(f"layer{i}" for i in (2, 3, 4)), "distance from the box", "chance"]
    kinds, measures = ("object", "background"), ("AUROC", "pointing")
    assert list(values) == [f"{row} {kind} {measure}" for kind in kinds for row in rows for measure in measures]
    assert values["chance object AUROC"] == 0.5
    assert values["distance from the box object AUROC"] > 0.8
    assert result["evaluation"] == "attend"
    assert result["details"]["queries"]["object"] > 8


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--show", "box"], "go together"),
        (["--show", "box", "--box", "0.5", "0.1", "0.4", "0.9"], "is empty"),
        (["--box", "0", "0", "1", "1"], "go together"),
        (["--other", "a.png"], "add --show other"),
        (["--images", "missing.png"], "missing.png"),
        (["--images", "a.png", "--data", "scenes"], "exclude each other"),
        (["--data", "scenes", "--out", "picture.txt"], "must end with"),
        (["--data", "scenes", "--names", "a", "b"], "2 titles for 1 runs"),
        (["--data", "scenes", "--layers", "layer9"], "no layer 'layer9'"),
        (["--data", "scenes", "--score", "--show", "jigsaw"], "draws nothing"),
        (["--data", "scenes:4,4", "--score", "--scale", "1"], "give another --scale"),
        ([], "give --data SOURCE or --images FILE"),
    ],
)
def test_mistakes_are_one_sentence(scfs, flags, message):
    code, _, err = scfs("attend", RANDOM, *flags)
    assert code == 2
    assert message in err.replace("\n", " ")
    assert "Traceback" not in err


def test_a_picture_of_the_user_is_not_overwritten(scfs, tmp_path):
    (tmp_path / "mine.png").write_bytes(b"mine")
    code, _, err = scfs("attend", RANDOM, "--data", "scenes:4,4", "--out", tmp_path / "mine.png")
    assert code == 2
    assert "exists and is not overwritten" in err
    assert (tmp_path / "mine.png").read_bytes() == b"mine"


def test_boxes_without_masks_cannot_be_scored(scfs, tmp_path):
    """COCO's layout with boxes alone."""
    for split in ("train2017", "val2017"):
        (tmp_path / split).mkdir()
        Image.new("RGB", (40, 30)).save(tmp_path / split / "a.png")
        content = {
            "images": [{"id": 1, "file_name": "a.png", "width": 40, "height": 30}],
            "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [5, 5, 20, 20], "iscrowd": 0}],
            "categories": [{"id": 1, "name": "thing"}],
        }
        (tmp_path / "annotations").mkdir(exist_ok=True)
        (tmp_path / "annotations" / f"instances_{split}.json").write_text(json.dumps(content))
    code, _, err = scfs("attend", RANDOM, "--score", "--data", f"coco:{tmp_path}")
    assert code == 2
    assert "have no masks" in err.replace("\n", " ")


def test_one_scale_for_all_runs_of_a_layer():
    maps = [np.linspace(low, low + 0.2, 32, dtype=np.float32).reshape(2, 4, 4) for low in (0.1, 0.6)]
    names = (("a", "layer4", "layer4"), ("b", "layer4", "layer4"), ("b", "layer3", "layer3, b"))
    panels = [Panel(run, layer, [each], name) for (run, layer, name), each in zip(names, [*maps, maps[0]], strict=True)]
    scales = colour_scales(panels)
    assert list(scales) == ["layer4", "layer3, b"]
    assert scales["layer4"].vmin == pytest.approx(0.1, abs=0.01)
    assert scales["layer4"].vmax == pytest.approx(0.8, abs=0.01)
    assert scales["layer3, b"].vmax == pytest.approx(0.3, abs=0.01)


def test_a_title_that_is_too_long_names_run_and_layer(tmp_path):
    image, maps = Image.new("RGB", (32, 32)), [np.eye(4, dtype=np.float32)[None]]
    for run, parts in (("run", ["run, layer4"]), ("own_photos", ["own_photos", "layer4"])):
        save_attention_picture(
            tmp_path / f"{run}.svg",
            [Example(image, [(0, 0, 16, 16)], image)],
            [Panel(run, "layer4", maps)],
            ["attention"],
        )
        drawn = re.findall("<!-- (.*) -->", (tmp_path / f"{run}.svg").read_text())
        assert [text for text in drawn if "layer4" in text or run in text][: len(parts)] == parts


def test_the_colour_bar_has_the_colours_of_the_maps(tmp_path):
    """A map that is lowest everywhere is dark, one that is highest is bright, whichever run it is of."""
    image = Image.new("RGB", (32, 32), (128, 128, 128))
    low, high = (np.full((1, 4, 4), value, np.float32) for value in (0.1, 0.9))
    path = tmp_path / "x.png"
    panels = [Panel("a", "layer4", [low]), Panel("b", "layer4", [high])]
    save_attention_picture(path, [Example(image, [(0, 0, 16, 16)], image)], panels, ["attention"])
    with Image.open(path) as drawn:
        grey = np.asarray(drawn.convert("L")).astype(float)
    rows = slice(int(0.5 * len(grey)), int(0.7 * len(grey)))
    cells = [grey[rows, int((i + 0.5) * 280) - 40 : int((i + 0.5) * 280) + 40].mean() for i in (2, 3)]
    assert cells[0] < 80 < 160 < cells[1]
