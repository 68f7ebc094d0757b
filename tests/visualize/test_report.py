import base64
import io
import json
import os
import re
import tarfile
from pathlib import Path

import pytest
from PIL import Image

from scfs.data.sources import open_labelled
from scfs.runs.metric import Metric
from scfs.runs.metrics_log import metrics_row, summarise
from scfs.visualize.report import evidence
from tests.test_bad_input import refused

MAX_BYTES = 10_000_000
SECTIONS = ("Nearest neighbours", "Map of the photos", "Attention before and after", "Next commands", "Curves")


def read_page(path: Path) -> str:
    """A page, after checking that it is one small file and that every picture in it can be read and is not blank."""
    page = path.read_text(encoding="utf-8")
    assert path.stat().st_size < MAX_BYTES
    addresses = re.findall(r'(?:src|href)="([^"]*)"', page)
    assert all(address.startswith(("data:", "#")) for address in addresses)
    assert "http" not in re.sub(r"data:[^\"]*", "", page)
    pictures = [address for address in addresses if address.startswith("data:image")]
    for address in pictures:
        with Image.open(io.BytesIO(base64.b64decode(address.partition(",")[2]))) as picture:
            low, high = picture.convert("L").getextrema()
            assert low < high
    return page


def titles(page: str) -> list[str]:
    return re.findall(r"<h2>(.*?)</h2>", page)


@pytest.mark.parametrize(
    "flags",
    [
        ["--run.knn_every_epochs", 1],
        ["--method.contrast", "dino-no-multicrop"],
        ["--backbone.name", "vit_tiny_patch16_224", "--views.global_size", 48, "--views.local_size", 16],
    ],
)
def test_one_run(scfs, tiny_recipe, tmp_path, flags):
    run = tmp_path / "run"
    assert scfs("pretrain", tiny_recipe, "--run.folder", run, *flags)[0] == 0
    code, out, err = scfs("report", run)
    assert code == 0, err
    assert "Too short to judge" in out
    assert ("k-NN top-1:" in out) == ("--run.knn_every_epochs" in flags)
    names = [line.rpartition(" ")[0].strip() for line in out.splitlines()[-4:]]
    assert names == ["run folder", "example views", "attention maps", "report"]
    page = read_page(run / "report" / "index.html")
    found = titles(page)
    assert [title for title in found if title in SECTIONS] == list(SECTIONS)
    assert {"k-NN by layer", "Feature maps in colours", "Example views"} <= {*found}
    assert "Results" not in found  # there are none
    for words in ("12 (10 classes)", "random weights", "after training", "Changed in the recipe tiny", "6 of 6"):
        assert words in page
    for name in ("views.png", "attention.png"):
        with Image.open(run / "report" / name) as picture:
            darkest, brightest = picture.convert("L").getextrema()
        assert brightest - darkest > 100


def test_several_runs(scfs, trained, tiny_recipe, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    other = ("--run.folder", "other", "--method.contrast", "dino", "--optim.epochs", 1)
    assert scfs("pretrain", tiny_recipe, *other)[0] == 0
    assert scfs("knn", trained, "--k", 3, "--workers", 0)[0] == 0
    for name in ("report", "report-2"):  # a page of several runs is never overwritten
        code, out, err = scfs("report", trained, "other")
        assert code == 0, err
        assert out.splitlines()[-1].endswith(f"runs/{name}.html")
    page = read_page(tmp_path / "runs" / "report.html")
    assert (tmp_path / "runs" / "report-2.html").read_text(encoding="utf-8") == page  # the same every time
    assert page.count('class="card verdict') == 2
    assert page.count("<h4>trained</h4>") == page.count("<h4>other</h4>") > 0
    assert "optim.epochs</td><td>2</td><td>1</td>" in page  # settings that differ
    assert "data.source</td>" not in page.partition("<h3>trained</h3>")[0].rpartition("<table")[2]
    assert {"Results", "Map of the photos"} <= {*titles(page)}
    assert refused(scfs("report", trained, "nowhere"), "is not a run folder")


def test_another_file(scfs, trained, tmp_path, monkeypatch):
    """Next to a folder with the name of the embedded data, which is not meant."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scenes:12,8").mkdir()
    (tmp_path / "scenes:12,8" / "notes.heic").write_bytes(b"")
    page = tmp_path / "page.html"
    assert scfs("report", trained, "--out", page)[0] == 0
    assert "heic" not in read_page(page)
    assert not (trained / "report").exists()
    assert refused(scfs("report", trained, "--out", page), "exists and is not overwritten")


def test_every_result_of_a_run_of_an_older_version(scfs, tmp_path):
    with tarfile.open(Path(__file__).parent.parent / "runs" / "run_of_0.1.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    run = tmp_path / "old_run"
    entries = json.loads((run / "results.json").read_text())
    assert scfs("report", run)[0] == 0
    page = read_page(run / "report" / "index.html")
    assert "Different from the defaults" in page  # no recipe was recorded
    for entry in entries:
        for figure in entry["figures"].values():
            assert f"<span>{100 * figure['top1']:.1f} %</span><small>" in page
            assert f"{100 * figure['interval'][0]:.1f}–{100 * figure['interval'][1]:.1f}" in page  # noqa: RUF001
    assert {entry["evaluation"] for entry in entries} == set(re.findall(r"<h3>(knn|linear|finetune)</h3>", page))


@pytest.fixture
def flat(photos, tmp_path):
    """Photos without labels, of which one cannot be read and one is skipped."""
    flat = tmp_path / "flat <b>"
    flat.mkdir()
    for number, path in enumerate(sorted(photos.rglob("*.jpg"))):
        path.rename(flat / f"{number:02}<i>.jpg")
    (flat / "00<i>.jpg").write_bytes(b"no image")
    (flat / "notes.heic").write_bytes(b"")
    return flat


def test_images_without_labels_and_some_unreadable(scfs, tiny_recipe, flat, tmp_path):
    """A fraction of unreadable images that pre-training accepts is accepted by the report too."""
    flags = ("--data.source", flat, "--data.max_unreadable", 0.5, "--optim.epochs", 1)
    assert scfs("pretrain", tiny_recipe, "--run.folder", tmp_path / "run", *flags)[0] == 0
    code, out, err = scfs("report", tmp_path / "run")
    assert code == 0, err
    assert out.splitlines()[-1].startswith(f"Unreadable, left out: Cannot read image {flat / '00<i>.jpg'}: ")
    page = read_page(tmp_path / "run" / "report" / "index.html")
    assert "the most similar of 11 photos" in page
    assert "12 (no labels)" in page
    assert "<dd>1 .heic</dd>" in page
    assert "<i>.jpg" not in page
    assert "flat <b>" not in page
    assert "another class" not in page  # frames show classes
    shown = re.findall(r'alt="query: (\d+)', page)
    assert len(shown) == len({*shown}) == 6  # an unreadable photo is not replaced by one that is shown anyway
    assert "00" not in shown


def test_photos_that_are_gone(scfs, tiny_recipe, photos, tmp_path):
    run = tmp_path / "run"
    assert scfs("pretrain", tiny_recipe, "--run.folder", run, "--data.source", photos)[0] == 0
    page = run / "report" / "index.html"
    page.parent.mkdir()
    page.write_text("an earlier report")
    photos.rename(tmp_path / "moved")
    assert refused(scfs("report", run), "have moved, add --data", "--pictures false")
    assert page.read_text() == "an earlier report"
    assert scfs("report", run, "--data", tmp_path / "moved")[0] == 0
    assert "k-NN by layer" in titles(read_page(page))
    assert scfs("report", run, "--pictures", "false")[0] == 0
    assert titles(read_page(page)) == ["Next commands", "Curves", "Settings and environment"]


def test_a_run_from_initial_weights_is_compared_with_them(scfs, trained, tiny_recipe, tmp_path):
    second = tmp_path / "second"
    assert scfs("pretrain", tiny_recipe, "--init", trained, "--run.folder", second)[0] == 0
    assert scfs("report", second)[0] == 0
    assert "<h4>initial weights</h4>" in read_page(second / "report" / "index.html")


def test_a_run_of_a_handful_of_photos(scfs, tiny_recipe, photos, tmp_path):
    """Neighbours and maps need some."""
    for path in sorted(photos.rglob("*.jpg"))[2:]:
        path.unlink()
    flags = ("--data.source", photos, "--optim.batch_size", 2, "--run.folder", tmp_path / "run")
    assert scfs("pretrain", tiny_recipe, *flags)[0] == 0
    assert scfs("report", tmp_path / "run")[0] == 0
    found = titles(read_page(tmp_path / "run" / "report" / "index.html"))
    assert not {"Nearest neighbours", "Map of the photos"} & {*found}
    assert "Attention before and after" in found


def test_images_that_are_scored_are_not_among_their_neighbours(scfs, tiny_recipe, photos, monkeypatch, tmp_path):
    """Without a val folder every fifth image is held out."""
    known, score = [], evidence.knn_accuracy

    def recorded(train, val, **options):
        known.append(len(train.labels))
        return score(train, val, **options)

    monkeypatch.setattr(evidence, "knn_accuracy", recorded)
    flags = ("--data.source", photos, "--run.folder", tmp_path / "run")
    assert scfs("pretrain", tiny_recipe, *flags)[0] == 0
    assert scfs("report", tmp_path / "run")[0] == 0
    train, val = open_labelled(str(photos))
    assert {*known} == {len(train)}
    assert len(val) > 0


def test_classes_whose_names_are_not_utf8(scfs, trained, photos):
    (photos / "cats").rename(photos / os.fsdecode(b"caf\xe9"))
    assert scfs("report", trained, "--data", photos)[0] == 0
    assert "caf\ufffd" in read_page(trained / "report" / "index.html")


def test_classes_in_letters_that_the_font_does_not_have(scfs, trained, photos):
    """matplotlib warns of each, and warnings are errors in tests."""
    (photos / "cats").rename(photos / "猫")
    assert scfs("report", trained, "--data", photos)[0] == 0
    assert "猫" in read_page(trained / "report" / "index.html")


def test_the_summary_compares_the_first_and_last_score():
    rows = [{"step": 1, "knn_top1": 0.2, "rankme": 3.0}, {"step": 2, "loss": 1.0}, {"step": 2, "knn_top1": 0.45}]
    assert summarise(rows) == "k-NN top-1: 20.0% at the start, 45.0% after training (+25.0 points)"
    assert summarise([]) == "No score was computed."
    without_labels = [metrics_row(step, 0, [Metric("RankMe", value, unit="")]) for step, value in ((0, 3.0), (9, 7.5))]
    assert summarise(without_labels) == "RankMe: 3.0 at the start, 7.5 after training (+4.5)"
