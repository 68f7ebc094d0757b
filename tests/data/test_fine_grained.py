"""Tiny files in the published layouts of data sets for transfer."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from scfs.data.sources import open_labelled, open_train
from scfs.errors import UserError


def photo(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (20, 16), (10, 80, 160)).save(path, "JPEG")


def listed(path, *lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


def contents(source):
    return [(Path(source.name(i)).name, source.classes[source.label(i)]) for i in range(len(source))]


def cub(root):
    base, birds = root / "CUB_200_2011", ["001.Albatross/a.jpg", "001.Albatross/b.jpg", "002.Wren/c.jpg"]
    for bird in birds:
        photo(base / "images" / bird)
    listed(base / "images.txt", *(f"{i} {bird}" for i, bird in enumerate(birds, start=1)))
    listed(base / "image_class_labels.txt", "1 1", "2 1", "3 2")
    listed(base / "train_test_split.txt", "1 1", "2 0", "3 1")
    listed(base / "classes.txt", "1 001.Albatross", "2 002.Wren")
    return [("a.jpg", "001.Albatross"), ("c.jpg", "002.Wren")], [("b.jpg", "001.Albatross")]


def aircraft(root):
    base = root / "fgvc-aircraft-2013b" / "data"
    for number in ("0000001", "0000002", "0000003"):
        photo(base / "images" / f"{number}.jpg")
    listed(base / "variants.txt", "707-320", "Cessna 172")
    listed(base / "images_variant_trainval.txt", "0000003 Cessna 172", "0000001 707-320")
    listed(base / "images_variant_test.txt", "0000002 Cessna 172")
    return [("0000003.jpg", "Cessna 172"), ("0000001.jpg", "707-320")], [("0000002.jpg", "Cessna 172")]


def pets(root):
    base = root / "oxford-iiit-pet"
    for name in ("Abyssinian_1", "Abyssinian_2", "great_pyrenees_7"):
        photo(base / "images" / f"{name}.jpg")
    listed(base / "annotations" / "trainval.txt", "Abyssinian_1 1 1 1", "great_pyrenees_7 2 2 1")
    listed(base / "annotations" / "test.txt", "#Image CLASS-ID SPECIES BREED ID", "Abyssinian_2 1 1 1")
    train = [("Abyssinian_1.jpg", "Abyssinian"), ("great_pyrenees_7.jpg", "great_pyrenees")]
    return train, [("Abyssinian_2.jpg", "Abyssinian")]


def cars(root):
    scipy_io = pytest.importorskip("scipy.io")
    base = root / "stanford_cars"
    for name in ("cars_train/00001.jpg", "cars_train/00002.jpg", "cars_test/00001.jpg"):
        photo(base / name)
    (base / "devkit").mkdir()
    names = np.empty((1, 2), object)
    names[0] = ["AM General Hummer SUV 2000", "Acura RL Sedan 2012"]
    scipy_io.savemat(base / "devkit" / "cars_meta.mat", {"class_names": names})

    def annotate(path, *rows):
        kind = [("class", object), ("fname", object)]
        table = np.array([[(np.array([[label]]), np.array([name])) for label, name in rows]], dtype=kind)
        scipy_io.savemat(path, {"annotations": table})

    annotate(base / "devkit" / "cars_train_annos.mat", (2, "00001.jpg"), (1, "00002.jpg"))
    annotate(base / "cars_test_annos_withlabels.mat", (1, "00001.jpg"))
    hummer, acura = names[0]
    return [("00001.jpg", acura), ("00002.jpg", hummer)], [("00001.jpg", hummer)]


LAYOUTS = {"cub": cub, "aircraft": aircraft, "pets": pets, "cars": cars}


@pytest.mark.parametrize("kind", LAYOUTS)
def test_train_and_test_as_published(kind, tmp_path):
    expected = LAYOUTS[kind](tmp_path)
    found = open_labelled(f"{kind}:{tmp_path}")
    assert tuple(contents(source) for source in found) == expected
    [base] = tmp_path.iterdir()
    inner = base / "data" if kind == "aircraft" else base
    assert contents(open_train(f"{kind}:{inner}")) == expected[0]
    assert found[0].image(0).size == (20, 16)


@pytest.mark.parametrize("kind", LAYOUTS)
def test_missing_files_are_named(kind, tmp_path):
    with pytest.raises(UserError, match="give the folder of the unpacked data set"):
        open_train(f"{kind}:{tmp_path}")
    LAYOUTS[kind](tmp_path)
    next(tmp_path.rglob("*1.jpg"), next(tmp_path.rglob("a.jpg"), None)).unlink()
    with pytest.raises(UserError, match=r"1 of the . images .* do not exist"):
        open_labelled(f"{kind}:{tmp_path}")


def test_cars_without_test_labels(tmp_path):
    cars(tmp_path)
    (tmp_path / "stanford_cars" / "cars_test_annos_withlabels.mat").unlink()
    assert len(open_train(f"cars:{tmp_path}")) == 2
    with pytest.raises(UserError, match="published separately"):
        open_labelled(f"cars:{tmp_path}")


def test_aircraft_by_its_own_folder(tmp_path):
    expected = aircraft(tmp_path)
    assert contents(open_train(f"aircraft:{tmp_path}/fgvc-aircraft-2013b")) == expected[0]


@pytest.mark.parametrize(
    ("kind", "name", "text"),
    [
        ("cub", "images.txt", b"1"),
        ("cub", "image_class_labels.txt", b"1 one\n2 two\n3 three"),
        ("cub", "classes.txt", b"1 caf\xe9"),
        ("aircraft", "images_variant_trainval.txt", b"0000001"),
        ("cars", "*_meta.mat", b""),
        ("pets", "trainval.txt", b"Abyssinian_1"),
        ("pets", "test.txt", b"Abyssinian_1 first 1 1"),
    ],
)
def test_damaged_lists_are_user_errors(kind, name, text, tmp_path):
    LAYOUTS[kind](tmp_path)
    [path] = tmp_path.rglob(name)
    path.write_bytes(text)
    with pytest.raises(UserError, match=r"unpack the data set again"):
        open_train(f"{kind}:{tmp_path}")
