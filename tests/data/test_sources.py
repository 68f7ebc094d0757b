import pickle
import shutil
from pathlib import Path

import pytest
from PIL import Image

from scfs.data.scenes import render_scene
from scfs.data.sources import open_labelled, open_train, read_folder
from scfs.errors import UserError

SHARED = Path(__file__).parents[3] / "shared" / "data"


def test_scenes_by_name():
    assert len(open_train("scenes")) == 5000
    train, val = open_labelled("scenes:30,20")
    assert (len(train), len(val), len(train.classes)) == (30, 20, 10)
    assert train.image(0).size == (128, 128)
    assert {train.label(i) for i in range(30)} <= set(range(10))


def test_scenes_are_kept_and_survive_pickling():
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


def test_every_fifth_image_is_held_out(photos):
    train, val = open_labelled(str(photos))
    assert (len(train), len(val)) == (10, 2)
    assert {path.name for path in val.files} == {"4.jpg"}
    assert not {*train.files} & {*val.files}


def test_odd_modes_become_rgb(tmp_path):
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


@pytest.mark.skipif(not (SHARED / "imagenette96").is_dir(), reason="no photos beside the project")
def test_real_photos():
    train, val = open_labelled(str(SHARED / "imagenette96"))
    assert (len(train), len(val), len(train.classes)) == (9469, 3925, 10)
    assert train.image(0).size == (96, 96)
