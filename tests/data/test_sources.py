import pickle
import shutil
from pathlib import Path

import pytest
from PIL import Image

from scfs.data.decode import Unreadable
from scfs.data.files import read_folder
from scfs.data.scenes import render_scene
from scfs.data.sources import open_labelled, open_train
from scfs.errors import UserError

SHARED = Path(__file__).parents[3] / "shared" / "data"


def names(source):
    return [source.name(i) for i in range(len(source))]


def test_scenes_by_name():
    assert len(open_train("scenes")) == 5000
    train, val = open_labelled("scenes:30,20")
    assert (len(train), len(val), len(train.classes)) == (30, 20, 10)
    assert train.image(0).size == (128, 128)
    assert {train.label(i) for i in range(30)} <= set(range(10))
    assert (train.name(7), val.name(0)) == ("scenes/train/7", "scenes/val/0")


def test_scenes_are_cached_and_survive_pickling():
    source, _ = open_labelled("scenes:4,4")
    fresh = Image.fromarray(render_scene(0, "train", 2).image)
    assert source.image(2) == source.image(2) == pickle.loads(pickle.dumps(source)).image(2) == fresh
    source.image(2).paste((0, 0, 0), (0, 0, 128, 128))  # what a caller does to its copy
    assert source.image(2) == fresh


def test_class_folders(photos):
    source = read_folder(photos)
    assert source.classes == ("cats", "dogs")
    assert len(source) == 12
    assert [source.label(i) for i in (0, 5, 6, 11)] == [0, 0, 1, 1]
    assert source.image(0).size == (48, 40)
    assert names(source) == sorted(str(path) for path in photos.rglob("*.jpg"))


def test_classes_are_the_topmost_folders_with_images(photos):
    (photos / "cats" / "indoor").mkdir()
    (photos / "cats" / "0.jpg").rename(photos / "cats" / "indoor" / "0.jpg")
    (photos / "birds").mkdir()
    source = read_folder(photos)
    assert source.classes == ("cats", "dogs")
    assert [source.label(i) for i in range(12)] == [0] * 6 + [1] * 6


def test_an_image_beside_class_folders_makes_them_all_unlabelled(photos):
    (photos / "cats" / "0.jpg").rename(photos / "0.jpg")
    assert (read_folder(photos).classes, len(read_folder(photos))) == ((), 12)


def test_sources_survive_pickling(photos):
    for source in (read_folder(photos), *open_labelled(str(photos))):
        other = pickle.loads(pickle.dumps(source))
        assert names(other) == names(source)
        assert other.image(1) == source.image(1)
        assert other.label(1) == source.label(1)


def test_a_bad_file_is_unreadable(photos):
    (photos / "cats" / "3.jpg").write_bytes(b"no image")
    source = read_folder(photos)
    with pytest.raises(Unreadable) as caught:
        source.image(3)
    assert caught.value.name == source.name(3) == str(photos / "cats" / "3.jpg")


def test_the_pixel_cap_applies_to_every_source(photos):
    for opener in (open_train, lambda *a, **k: open_labelled(*a, **k)[1]):
        assert opener(str(photos), max_pixels=40 * 48).image(0).size == (48, 40)
        with pytest.raises(Unreadable, match="more than 1919 pixels"):
            opener(str(photos), max_pixels=40 * 48 - 1).image(0)


def test_flat_folder_has_no_labels(photos):
    source = open_train(str(photos / "cats"))
    assert source.classes == ()
    assert len(source) == 6


def test_train_folder_is_preferred(photos, tmp_path):
    root = tmp_path / "set"
    shutil.copytree(photos, root / "train")
    shutil.copytree(photos, root / "val")
    assert len(open_train(str(root))) == 12
    train, val = open_labelled(str(root))
    assert (len(train), len(val)) == (12, 12)


@pytest.mark.parametrize(
    ("train", "held_out", "ignored"),
    [
        ("train", "val", "test"),
        ("Train", "Val", "Test"),
        ("training", "validation", "eval"),
        ("train", "test", "extra"),
    ],
)
def test_splits_by_their_usual_names(photos, tmp_path, train, held_out, ignored):
    root = tmp_path / "splits"
    for name in (train, held_out, ignored):
        shutil.copytree(photos, root / name)
    for image in (root / held_out).glob("*/1.jpg"):
        image.unlink()
    (root / "features.parquet").write_bytes(b"")  # beside images, not the images
    shutil.rmtree(root / ignored / "cats")
    found = open_labelled(str(root))
    assert [Path(source.name(0)).parts[-3] for source in found] == [train, held_out]
    assert len(found[1]) < len(found[0]) == len(open_train(str(root)))


def test_every_fifth_image_is_held_out(photos):
    train, val = open_labelled(str(photos))
    assert (len(train), len(val)) == (10, 2)
    assert names(val) == [str(photos / name / "4.jpg") for name in ("cats", "dogs")]
    assert [val.label(i) for i in range(2)] == [0, 1]
    assert sorted(names(train) + names(val)) == names(read_folder(photos))


def test_every_fifth_of_a_train_folder_alone(photos, tmp_path):
    shutil.copytree(photos, tmp_path / "set" / "train")
    train, val = open_labelled(str(tmp_path / "set"))
    assert train.classes == ("cats", "dogs")
    assert (len(train), len(val)) == (10, 2)


def test_unusual_modes_become_rgb(tmp_path):
    for mode in ("P", "L", "LA", "CMYK", "I;16", "1"):
        suffix = "tif" if mode == "CMYK" else "png"
        Image.new(mode, (8, 6)).save(tmp_path / f"{mode.replace(';', '')}.{suffix}")
    source = read_folder(tmp_path)
    assert len(source) == 6
    assert all(source.image(i).mode == "RGB" for i in range(6))


def test_too_few_to_hold_out(photos):
    for path in photos.rglob("[2-5].jpg"):
        path.unlink()
    with pytest.raises(UserError, match="at least 5"):
        open_labelled(str(photos))


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("", "data.source is not set"),
        ("nowhere", "No folder at nowhere"),
        ("cifar11:photos", "did you mean 'cifar10:photos'?"),
        ("scene:5,5", "did you mean 'scenes:5,5'?"),
        ("https://example.com/x.tgz", "is not on this machine"),
        ("s3://bucket/x-{0..9}.tar", "is not on this machine"),
        ("photos/cats/0.jpg", "is not a data source; give a folder, a .txt list"),
        ("photos/*.jpg", "not all .tar or all .parquet files"),
    ],
)
def test_unknown_sources(photos, monkeypatch, source, sentence):
    monkeypatch.chdir(photos.parent)
    (photos / "0.jpg").touch()
    for opener in (open_train, open_labelled):
        with pytest.raises(UserError) as caught:
            opener(source)
        assert sentence in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.skipif(not (SHARED / "imagenette96").is_dir(), reason="no photos beside the project")
def test_real_photos():
    train, val = open_labelled(str(SHARED / "imagenette96"))
    assert (len(train), len(val), len(train.classes)) == (9469, 3925, 10)
    assert train.image(0).size == (96, 96)
