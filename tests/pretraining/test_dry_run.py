import re
import tempfile
from pathlib import Path

import pytest
from PIL import Image

from scfs.data.files import read_folder
from scfs.pretraining import dry_run


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    """The working directory, which stays empty, and the system's temporary folder."""
    folder = tmp_path / "scratch"
    for name in ("work", "temporary"):
        (folder / name).mkdir(parents=True)
    monkeypatch.chdir(folder / "work")
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "temporary"))
    return folder


def test_a_dry_run_prints_the_cost_of_a_run_and_trains_nothing(scfs, tiny_recipe, scratch):
    code, out, _ = scfs("pretrain", tiny_recipe, "--dry-run")
    assert code == 0
    for text in (
        "tiny: dry run, 12 images, 6 steps, cpu",
        "images: 12 used\n",
        "steps: 6 (3 per epoch, 2 epochs)",
        "parameters: ",
        "memory: about",
        "time per step: about",
        "total time: about",
    ):
        assert text in out
    [picture] = [path for path in scratch.rglob("*") if path.is_file()]
    assert picture.parent == scratch / "temporary"
    assert f"example views: {picture}\n" in out
    with Image.open(picture) as image:
        assert min(image.size) > 200
    assert "Nothing was trained or saved" in out
    assert not any((scratch / "work").iterdir())


def test_a_second_dry_run_does_not_overwrite_the_first_picture(scfs, tiny_recipe, scratch):
    for _ in range(2):
        assert scfs("pretrain", tiny_recipe, "--dry-run")[0] == 0
    assert len([*scratch.rglob("*.png")]) == 2


@pytest.mark.usefixtures("scratch")
def test_a_dry_run_with_gradient_accumulation(scfs, tiny_recipe, tmp_path):
    assert scfs("pretrain", tiny_recipe, "--dry-run", "--optim.accumulate", 2)[0] == 0
    assert not list(tmp_path.rglob("metrics.jsonl"))


@pytest.mark.usefixtures("scratch")
def test_a_dry_run_counts_skipped_files_and_warns_of_short_epochs(scfs, tiny_recipe, photos):
    for name in ("a.HEIC", "b.heic", "c.cr2", ".hidden"):
        (photos / "cats" / name).touch()
    words = ("pretrain", tiny_recipe, "--dry-run", "--data.source", photos)
    code, out, err = scfs(*words, "--optim.batch_size", 6)
    assert code == 0, err
    assert (
        "images: 12 used, 3 files skipped because of their suffix (2 .heic, 1 .cr2), 0 unreadable of 12 checked" in out
    )
    assert "Warning: an epoch has only 2 step(s) of 6 images" in out
    assert "Warning" not in scfs(*words)[1]


@pytest.mark.usefixtures("scratch")
def test_a_dry_run_counts_and_names_unreadable_images(scfs, tiny_recipe, photos):
    for i in (1, 3):
        (photos / "dogs" / f"{i}.jpg").write_bytes(b"no image")
    words = ("pretrain", tiny_recipe, "--dry-run", "--data.source", photos)
    code, out, err = scfs(*words)
    assert code == 0, err
    assert "2 unreadable of 12 checked" in out
    assert re.findall(r"Unreadable: Cannot read image \S+/(dogs/\d\.jpg): it is not an image", out) == [
        "dogs/1.jpg",
        "dogs/3.jpg",
    ]
    assert "would stop" not in out
    for path in photos.glob("cats/*.jpg"):
        path.write_bytes(b"no image")
    out = scfs(*words)[1]
    assert "8 unreadable of 12 checked" in out
    assert out.count("Unreadable: ") == 5
    assert "... and 3 more" in out
    assert "the run would stop: more than the 5 allowed are unreadable" in out


def test_of_many_images_an_evenly_spaced_sample_is_checked(photos, monkeypatch):
    (photos / "dogs" / "5.jpg").write_bytes(b"no image")
    monkeypatch.setattr(dry_run, "MAX_CHECKED", 4)
    source = read_folder(photos)
    seen, image = [], source.image
    monkeypatch.setattr(source, "image", lambda index: (seen.append(index), image(index))[1])
    checked, unreadable = dry_run.check_images(source, processes=False)
    assert (checked, seen) == (4, [0, 4, 7, 11])
    assert [Path(problem.split(":")[0]).name for problem in unreadable] == ["5.jpg"]
    assert dry_run.check_images(source, processes=True) == (checked, unreadable)
