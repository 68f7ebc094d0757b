"""Advice on photos that are far larger than their views need."""

import numpy as np
import pytest
from conftest import RECIPES
from PIL import Image

from scfs.config import Config
from scfs.data.sources import open_train
from scfs.pretraining.photo_size import enough_pixels, large_photos
from scfs.recipe import check, read_toml


def config_of(recipe, **flags):
    flags = {name.replace("__", "."): value for name, value in flags.items()}
    return check(Config, read_toml(RECIPES / f"{recipe}.toml"), flags)


@pytest.fixture
def folder(tmp_path):
    """A folder of photos of given sizes."""

    def make(*sizes):
        (tmp_path / "my photos").mkdir(exist_ok=True)
        for number, (width, height) in enumerate(sizes):
            pixels = np.zeros((height, width, 3), np.uint8)
            Image.fromarray(pixels).save(tmp_path / "my photos" / f"{number}.jpg")
        return tmp_path / "my photos"

    return make


def test_enough_pixels():
    """Views of 64 pixels from a fifth of the area, and of 32 pixels from a twentieth; both sides are about 143."""
    assert enough_pixels(config_of("own_photos")) == 256
    assert enough_pixels(config_of("cpu_imagenette")) == 256
    larger = config_of("cpu_imagenette", views__local_size=64)
    assert enough_pixels(larger) == 32 * 16  # 64 / sqrt(0.05) x 1.75 = 501


def test_advice_names_the_command(folder):
    photos = folder((1200, 900), (100, 80), (900, 1200))
    advice = large_photos(config_of("own_photos", data__source=str(photos)), open_train(str(photos)))
    assert "about 900 pixels on the shorter side, far more than views of 64 need" in advice
    assert advice.endswith(f"scfs resize-data '{photos}' '{photos}-256' --side 256")


@pytest.mark.parametrize("sizes", [[(640, 480)] * 3, [(1200, 900), (100, 80), (100, 80)], [(4000, 300)]])
def test_no_advice_on_usual_photos(folder, sizes):
    photos = folder(*sizes)
    assert large_photos(config_of("own_photos", data__source=str(photos)), open_train(str(photos))) == ""


def test_no_advice_on_other_sources_or_unreadable_photos(folder, tmp_path):
    photos = folder((1200, 900))
    names = tmp_path / "list.txt"
    names.write_text(f"{photos}/0.jpg\n")
    assert large_photos(config_of("own_photos", data__source=str(names)), open_train(str(names))) == ""
    (photos / "0.jpg").write_bytes(b"no image")
    assert large_photos(config_of("own_photos", data__source=str(photos)), open_train(str(photos))) == ""


@pytest.mark.parametrize("flags", [["--dry-run"], []])
def test_pretrain_prints_the_advice(scfs, tiny_recipe, folder, tmp_path, flags):
    photos = folder(*[(1200, 900)] * 4)
    arguments = ("--data.source", photos, "--optim.epochs", 1, "--run.folder", tmp_path / "run", *flags)
    code, printed, err = scfs("pretrain", tiny_recipe, *arguments)
    assert (code, err) == (0, "")
    assert printed.count("scfs resize-data") == 1
