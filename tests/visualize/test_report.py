import json
import tarfile
from pathlib import Path

import pytest
import torch
from PIL import Image

from scfs.runs.metric import Metric
from scfs.runs.metrics_log import metrics_row, summarise
from scfs.visualize.curves import metric_lines, save_curves
from scfs.visualize.pictures import save_projection
from scfs.visualize.projection import Projection
from scfs.visualize.sections import result_rows

PICTURES = ("views.png", "attention.png", "curves.png", "neighbours.png", "projection.png")


def check_pictures(folder: Path) -> str:
    """The page of a report, after checking that every picture exists and is not blank."""
    page = (folder / "index.html").read_text(encoding="utf-8")
    for name in PICTURES:
        assert f'src="{name}"' in page
        with Image.open(folder / name) as picture:
            darkest, brightest = picture.convert("L").getextrema()
        assert brightest - darkest > 100
    return page


@pytest.mark.parametrize(
    "flags",
    [
        ["--run.knn_every_epochs", 1],
        ["--method.contrast", "dino-no-multicrop"],
        ["--backbone.name", "vit_tiny_patch16_224", "--views.global_size", 48, "--views.local_size", 16],
    ],
)
def test_pictures_and_page(scfs, tiny_recipe, tmp_path, flags):
    run = tmp_path / "run"
    assert scfs("pretrain", tiny_recipe, "--run.folder", run, *flags)[0] == 0
    code, out, _ = scfs("report", run)
    assert code == 0
    assert ("k-NN top-1:" in out) == ("--run.knn_every_epochs" in flags)
    page = check_pictures(run / "report")
    names = [line.rpartition(" ")[0].strip() for line in out.splitlines()[-4:]]
    assert names == ["run folder", "example views", "attention maps", "report"]
    assert "method.contrast" in page
    assert "<h2>Results</h2>" not in page  # there are none


def test_every_result_of_a_run_of_an_older_version(scfs, tmp_path):
    with tarfile.open(Path(__file__).parent.parent / "runs" / "run_of_0.1.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    run = tmp_path / "old_run"
    rows = result_rows(run)
    entries = json.loads((run / "results.json").read_text())
    assert len(rows) == 2 * sum(len(entry["figures"]) for entry in entries)  # top-1 and top-5
    assert ["knn", "scenes:12,8", "32 px", "k=5 top-1 %", "25.0", "0.0-62.5"] in [row[1:] for row in rows]
    assert {row[1] for row in rows} == {"knn", "linear", "finetune"}
    assert scfs("report", run)[0] == 0
    page = check_pictures(run / "report")
    for row in rows:
        assert "".join(f"<td>{cell}</td>" for cell in row) in page


def test_images_without_labels_and_some_unreadable(scfs, tiny_recipe, photos, tmp_path):
    """A fraction of unreadable images that pre-training accepts is accepted by the report too."""
    flat = tmp_path / "flat"
    flat.mkdir()
    for number, path in enumerate(sorted(photos.rglob("*.jpg"))):
        path.rename(flat / f"{number}.jpg")
    (flat / "3.jpg").write_bytes(b"no image")
    flags = ("--data.source", flat, "--data.max_unreadable", 0.5, "--optim.epochs", 1)
    assert scfs("pretrain", tiny_recipe, "--run.folder", tmp_path / "run", *flags)[0] == 0
    code, out, err = scfs("report", tmp_path / "run")
    assert code == 0, err
    assert out.splitlines()[-1].startswith(f"Unreadable, left out: Cannot read image {flat / '3.jpg'}: ")
    page = check_pictures(tmp_path / "run" / "report")
    assert "the most similar of 11 training images" in page
    assert "orange" not in page  # frames show classes


def test_classes_in_letters_that_the_font_does_not_have(scfs, trained, photos):
    """matplotlib warns of each, and warnings are errors in tests."""
    (photos / "cats").rename(photos / "猫")
    assert scfs("report", trained, "--data", photos)[0] == 0


def test_the_summary_compares_the_first_and_last_score():
    rows = [{"step": 1, "knn_top1": 0.2, "rankme": 3.0}, {"step": 2, "loss": 1.0}, {"step": 2, "knn_top1": 0.45}]
    assert summarise(rows) == "k-NN top-1: 20.0% at the start, 45.0% after training (+25.0 points)"
    assert summarise([]) == "No score was computed."
    without_labels = [metrics_row(step, 0, [Metric("RankMe", value, unit="")]) for step, value in ((0, 3.0), (9, 7.5))]
    assert summarise(without_labels) == "RankMe: 3.0 at the start, 7.5 after training (+4.5)"


def test_curves_of_a_run_whose_diagnostics_were_renamed(tmp_path):
    """As if an older version started the run and this one resumed it."""
    old = {"loss": 3.0, "loss/view": 3.0, "teacher_entropy": 0.5, "feature_spread": 0.5}
    new = {"loss": 3.0, "loss/view": 3.0, "entropy/view": 0.5, "spread/view": 0.9, "feature_spread": 0.5}
    rows = [{"step": 1.0, **old}, {"step": 2.0, **old}, {"step": 3.0, **new}, {"step": 3.0, "knn_top1": 0.2}]
    assert save_curves(tmp_path / "curves.png", rows)
    assert (tmp_path / "curves.png").stat().st_size > 0


def test_panels_without_a_line_are_left_out(tmp_path):
    rows = [{"step": 1, "loss": 2.0, "loss/view": 2.0}, {"step": 2, "loss": 1.0, "loss/view": 1.0}]
    assert metric_lines(rows) == {"losses": {"view": [(1, 2.0), (2, 1.0)]}}
    scores = [{"step": 0, "knn_top1": 0.25}]
    assert metric_lines(scores) == {"metrics in %": {"k-NN top-1": [(0, 25.0)]}}
    assert not save_curves(tmp_path / "none.png", [])
    assert not (tmp_path / "none.png").exists()


@pytest.mark.parametrize("num_classes", [0, 3, 40])
def test_projection_of_any_number_of_classes(tmp_path, num_classes):
    points = torch.rand(100, 2)
    labels = torch.arange(100) % num_classes if num_classes else torch.full((100,), -1)
    classes = [f"class {i}" for i in range(num_classes)]
    save_projection(tmp_path / "picture.png", Projection(points, torch.tensor([0.5, 0.1])), labels, classes)
    with Image.open(tmp_path / "picture.png") as picture:
        assert len(picture.convert("RGB").getcolors(1 << 20)) > 20
