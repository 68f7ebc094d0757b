"""The Python API, as shown in the README and in docs/python.md."""

import importlib
import pkgutil
import subprocess
import sys
import types

import numpy as np
import pytest
import torch
from conftest import REPO, TINY
from PIL import Image

import scfs
from scfs.cli import main
from scfs.data.views import centre_view, normalize
from scfs.errors import UserError


def test_the_example_of_the_readme(tiny_recipe, photos, tmp_path):
    run = scfs.pretrain(tiny_recipe, optim={"epochs": 1}, run={"folder": str(tmp_path / "run")})
    assert (run / "metrics.jsonl").is_file()
    backbone = scfs.load_backbone(str(run))
    paths = sorted(photos.rglob("*.jpg"))[:2]
    images, local_images = backbone.load_images(paths), backbone.load_images(paths, size=16)
    assert images.shape == (2, 3, 32, 32)
    assert backbone(images).shape == (2, 256)
    maps = backbone.maps(images)
    assert {name: tuple(value.shape) for name, value in maps.items()} == {
        "layer2": (2, 64, 4, 4),
        "layer3": (2, 128, 2, 2),
        "layer4": (2, 256, 1, 1),
    }
    queries, keys = backbone.maps(local_images)["layer2"], maps["layer2"]
    attention = scfs.search_attention(queries[None], keys[None])
    assert attention.shape == (1, 1, 2, 4, 4)
    assert attention.abs().max() <= 1 + 1e-6


def code_of(page, start, end=None):
    """The lines of a page's code between two words."""
    text = (REPO / page).read_text(encoding="utf-8")
    section = text[text.index(start) : text.index(end) if end else None]
    return "\n".join(line.removeprefix("    ") for line in section.splitlines() if line.startswith("    "))


@pytest.fixture
def named_photos(photos, monkeypatch):
    """Photos of the names on the pages, in the working directory."""
    for name, path in zip(("a", "b", "detail"), sorted(photos.rglob("*.jpg")), strict=False):
        path.rename(photos / f"{name}.jpg")
    monkeypatch.chdir(photos)


@pytest.mark.usefixtures("named_photos")
def test_the_lines_of_the_readme(tmp_path):
    code = code_of("README.md", "The same from Python", "## What you get")
    code = code.replace('"own_photos", data={"source": "photos/"}', f"{TINY}, run={{'folder': '{tmp_path / 'run'}'}}")
    names = {}
    exec(code.replace('"labelled/"', '"scenes:12,8"'), names)
    assert names["features"].shape == (2, 256)
    assert 0 <= names["top1"].value <= 1


@pytest.mark.usefixtures("named_photos")
def test_the_lines_of_the_page(trained):
    code = code_of("docs/python.md", "Use the backbone on photos")
    names = {"scfs": scfs}
    exec(code.replace("runs/try", str(trained)), names)
    assert names["features"].shape == (2, 256)
    assert names["attention"].shape[:3] == (1, 1, 2)


def test_an_image_is_prepared_as_in_evaluation(trained, photos):
    """Also one that is turned by its EXIF tag, from its file and as an image."""
    path = photos / "cats" / "0.jpg"
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.open(path).save(path, exif=exif)
    backbone, image = scfs.load_backbone(str(trained)), scfs.load_image(path)
    assert (image.mode, image.size) == ("RGB", (40, 48))
    expected = normalize(centre_view(image, 32))
    torch.testing.assert_close(backbone.preprocess(path), expected)
    torch.testing.assert_close(backbone.preprocess(image), expected)
    assert backbone.preprocess(image, size=48).shape == (3, 48, 48)
    path.write_bytes(b"no image")
    with pytest.raises(UserError, match="not an image of a known format; give an image file"):
        backbone.load_images([path])


def test_pil_images_are_turned_and_scaled_like_files(trained, tmp_path):
    """An upright phone photo is stored lying, with its orientation in EXIF; a microscope's has 16 bits."""
    backbone = scfs.load_backbone(trained)
    lying, exif = Image.effect_noise((60, 90), 80).convert("RGB"), Image.Exif()
    exif[0x0112] = 6
    lying.save(tmp_path / "phone.png", exif=exif)
    levels = np.random.default_rng(0).integers(0, 65536, (40, 50), dtype=np.uint16)
    Image.fromarray(levels).save(tmp_path / "microscope.png")
    for name in ("phone.png", "microscope.png"):
        path = tmp_path / name
        with Image.open(path) as image:
            assert torch.equal(backbone.load_images([image]), backbone.load_images(path))
    lying_down = backbone.load_images(lying)
    assert not torch.equal(backbone.load_images(tmp_path / "phone.png"), lying_down)


def test_paths_and_single_values_are_settings_too(trained, photos):
    found = [scfs.knn(trained, data=data, k=k) for data, k in ((str(photos), [5]), (photos, 5))]
    assert found[0] == found[1]


def test_settings_may_be_dictionaries(tmp_path):
    run = scfs.pretrain(TINY, optim={"epochs": 1}, run={"folder": str(tmp_path / "run")})
    assert (run / "last.pt").is_file()
    with pytest.raises(UserError, match="Did you mean 'optim\\.epochs'"):
        scfs.pretrain(TINY, optim={"epoch": 1})


def test_importing_the_package_does_not_import_torch():
    code = "import sys, scfs, scfs.cli; sys.exit('torch' in sys.modules or 'pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
    with pytest.raises(AttributeError):
        _ = scfs.nothing_of_the_kind


NAMES = (
    *("pretrain", "load_backbone", "load_image", "knn", "linear", "segment", "finetune", "embed", "export", "report"),
    *("search_attention", "overaug", "attend", "make_views", "nearest_images", "open_images", "open_labelled"),
    *("predict", "read_curves"),
)


def test_every_name_is_a_function_that_no_module_hides():
    assert {*NAMES} <= {*dir(scfs)} & {*scfs.__all__}
    for module in pkgutil.walk_packages(scfs.__path__, "scfs."):
        assert module.name.removeprefix("scfs.") not in NAMES  # importing it would replace the function
    for name in NAMES:
        assert isinstance(getattr(scfs, name), types.FunctionType), name


def test_evaluations(trained, photos, tmp_path):
    common = {"data": str(photos), "size": 32, "workers": 0, "device": "cpu"}
    names = [metric.name for metric in scfs.knn(trained, k=[1, 3], **common)]
    assert names == ["k=1 top-1", "k=3 top-1"]  # five guesses at two classes are always right
    [top1] = scfs.linear(trained, cached=True, epochs=1, rates=[0.1], **common)
    assert 0 <= top1.value <= 1
    tuned = scfs.finetune(
        trained, "semi_supervised_1", fraction=1.0, epochs=1, batch_size=4, out=str(tmp_path / "tuned"), **common
    )
    assert [metric.name for metric in tuned] == ["top-1"]
    query = {"query": str(photos / "cats" / "0.jpg"), "nearest": 1, "size": 32, "workers": 0}
    [match] = scfs.embed(trained, photos, **query)
    assert match.cosine == pytest.approx(1, abs=1e-4)
    assert scfs.export(trained, tmp_path / "out.safetensors").num_tensors > 10
    assert scfs.report(trained).is_file()
    with pytest.raises(UserError, match="Did you mean 'k'"):
        scfs.knn(trained, kk=3)


def test_nothing_is_printed_and_everything_is_logged(tiny_recipe, tmp_path, capfd, caplog):
    run = scfs.pretrain(tiny_recipe, optim={"epochs": 1}, run={"folder": str(tmp_path / "quiet")})
    assert capfd.readouterr() == ("", "")
    assert not caplog.records
    with caplog.at_level("INFO", logger="scfs"):
        scfs.knn(run, data="scenes:12,8", size=32, workers=0, k=[3])
    assert capfd.readouterr() == ("", "")
    assert {record.name for record in caplog.records} == {"scfs"}
    assert "k-NN on scenes:12,8" in caplog.text
    assert "top-1 %" in caplog.text  # the table


def test_the_program_keeps_its_threads_allocator_and_seed(tiny_recipe, tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(importlib.import_module("scfs.training.cpu"), "keep_freed_memory", lambda: calls.append(1))
    torch.set_num_threads(2)
    torch.manual_seed(7)
    state = torch.get_rng_state()
    run = scfs.pretrain(tiny_recipe, optim={"epochs": 1}, run={"folder": str(tmp_path / "run"), "threads": 1})
    common = {"data": "scenes:12,8", "size": 32, "workers": 0, "epochs": 1, "rates": [0.1], "weight_decays": [0]}
    scfs.finetune(run, batch_size=4, **common)
    scfs.load_backbone("random:resnet10_half")
    assert (torch.get_num_threads(), calls) == (2, [])
    assert torch.equal(torch.get_rng_state(), state)
    assert main(["pretrain", str(tiny_recipe), "--optim.epochs=1", "--run.folder", str(tmp_path / "cli")]) == 0
    assert calls == [1]


def test_rows_are_passed_on_as_they_are_logged(tiny_recipe, tmp_path):
    folder, rows, lengths = tmp_path / "run", [], []

    def on_row(row):
        rows.append(row)
        lengths.append(len(scfs.read_curves(folder).get("loss", ([],))[0]))

    scfs.pretrain(tiny_recipe, run={"folder": str(folder)}, on_row=on_row)
    curves = scfs.read_curves(folder)
    losses = [(row["step"], row["loss"]) for row in rows if "loss" in row]
    assert len(losses) == 6
    assert [*zip(*curves["loss"], strict=True)] == losses
    assert sorted(lengths) == lengths  # each row was in the file when the function was called
    assert lengths[-1] == 6
    scfs.pretrain(tiny_recipe, optim={"epochs": 1}, run={"folder": str(tmp_path / "other")})
    assert len(lengths) == len(rows)  # a later run has no listener


def test_curves_of_what_is_no_run(tmp_path):
    with pytest.raises(UserError, match=r"has no metrics\.jsonl; give the folder of a run"):
        scfs.read_curves(tmp_path)


def test_views_are_those_of_the_recipe(photos):
    image = scfs.load_image(photos / "cats" / "0.jpg")
    views = scfs.make_views(image, TINY, seed=3, views={"num_local_views": 5})
    assert (views.global_views.shape, views.local_views.shape) == ((2, 3, 32, 32), (5, 3, 16, 16))
    assert torch.equal(
        views.local_views, scfs.make_views(image, TINY, seed=3, views={"num_local_views": 5}).local_views
    )
    assert not torch.equal(views.local_views, scfs.make_views(image, TINY, views={"num_local_views": 5}).local_views)
    with pytest.raises(UserError, match="Did you mean"):
        scfs.make_views(image, TINY, views={"num_local_view": 5})


def test_features_of_many_images(photos):
    backbone, paths = scfs.load_backbone("random:resnet10_half"), sorted(photos.rglob("*.jpg"))
    backbone.size = 32
    features = backbone.features([scfs.load_image(paths[0]), *paths[1:5]], batch_size=2)
    torch.testing.assert_close(features, backbone(backbone.load_images(paths[:5])).detach(), rtol=1e-4, atol=1e-5)
    assert backbone.features([]).shape == (0, 256)
    found = scfs.nearest_images(features[:2], features, k=1)
    assert found.indices.tolist() == [[0], [1]]


def test_predictions(trained, photos, tmp_path):
    common = {"data": str(photos), "size": 32, "workers": 0, "device": "cpu"}
    scfs.linear(trained, cached=True, epochs=1, rates=[0.1], **common)
    predictions = scfs.predict(trained, photos, tmp_path / "classes.csv", workers=0)
    assert len(predictions) == 12
    assert {each.label for each in predictions} <= {"cats", "dogs"}
    assert all(0.5 <= each.probability <= 1 for each in predictions)
    assert len((tmp_path / "classes.csv").read_text().splitlines()) == 13
