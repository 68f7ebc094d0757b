"""The `scfs overaug` command, with the probe of a run, with another project's classifier, and as an audit."""

import json
import shutil

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import save_file

import scfs as package
from scfs.config import DataSettings
from scfs.console import LoggingConsole
from scfs.data.views import normalize, square_view
from scfs.runs.layout import write_settings
from scfs.runs.metric import by_name
from scfs.runs.results import read_results
from scfs.visualize.overaug.audit_picture import Curve, save_audit
from scfs.visualize.overaug.classifier import open_classifier
from scfs.visualize.overaug.comparison import Worst, worst_of_each_class
from scfs.visualize.overaug.comparison_picture import ComparedRow, save_comparison
from scfs.visualize.overaug.images import flags_of_new_local_views, open_unseen
from scfs.visualize.overaug.settings import Overaug
from scfs.visualize.run_settings import config_of
from tests.test_bad_input import refused

FEW = ("--images", 4, "--views", 2)


@pytest.fixture
def probed(trained, photos):
    """A tiny run with a probe for two classes."""
    package.linear(trained, cached=True, epochs=1, rates=[0.1], data=str(photos), size=32, workers=0)
    return trained


@pytest.fixture
def supervised(tmp_path):
    """The file of a timm classifier with three classes, and the classifier."""
    torch.manual_seed(0)
    net = timm.create_model("resnet18", num_classes=3).eval()
    path = tmp_path / "resnet18.safetensors"
    save_file(net.state_dict(), path)
    return path, net


def test_views_are_compared_with_the_probe_of_a_run(probed, photos, scfs):
    code, out, err = scfs("overaug", probed, "--data", photos, *FEW)
    assert (code, err) == (0, "")
    assert "probabilities of the true class" in out
    assert "2 views of area 0.05-0.14" in out
    result = read_results(probed)[-1]
    assert (result.evaluation, result.data) == ("overaug", str(photos))
    assert result.protocol == "true class, 32 px, views of 16 px and area 0.05-0.14"
    metrics = by_name(result.metrics)
    assert len(metrics) == 5
    assert all(0 <= low <= each.value <= high <= 1 for each in metrics.values() for low, high in [each.interval])
    with Image.open(probed / "overaug.png") as picture:
        assert picture.width > 1000
    again = by_name(package.overaug(probed, data=str(photos), images=4, views=2))
    assert again == metrics
    assert by_name(package.overaug(probed, data=str(photos), images=4, views=2, seed=1)) != metrics


def test_every_class_is_drawn_once_before_any_is_repeated():
    drops = [(0.9, 1), (0.8, 1), (0.7, 2), (0.95, 2), (0.1, 0)]
    worst = worst_of_each_class([Worst(drop, 0, label, *[None] * 4) for drop, label in drops])
    assert [(each.drop, each.reference) for each in worst] == [(0.95, 2), (0.9, 1), (0.1, 0), (0.8, 1), (0.7, 2)]


def test_without_labels_the_reference_is_the_top_class_of_the_original(probed, photos, scfs, tmp_path):
    picture = tmp_path / "one.svg"
    code, out, _ = scfs("overaug", probed, "--data", photos / "cats" / "0.jpg", "--out", picture)
    assert code == 0
    assert "1 image at 32 px" in out
    assert "probabilities of the top class of the original" in out
    assert picture.read_text(encoding="utf-8").startswith("<?xml")
    assert not (probed / "overaug.png").exists()


def test_another_projects_classifier_is_used_as_timm_would(supervised, photos):
    path, net = supervised
    classifier = open_classifier(str(path), Overaug(size=64), torch.device("cpu"), LoggingConsole())
    images = torch.stack([square_view(Image.open(file), 64) for file in sorted(photos.rglob("*.jpg"))[:3]])
    with torch.no_grad():
        expected = net(normalize(images)).softmax(dim=-1)
    torch.testing.assert_close(classifier.probabilities(classifier.maps(images)), expected)
    assert classifier.probe.classes == ["class 0", "class 1", "class 2"]


def test_names_of_classes_come_from_a_file(supervised, photos, scfs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path, _ = supervised
    names = tmp_path / "names.txt"
    names.write_text("dogs\nsnakes\ncats\n", encoding="utf-8")
    flags = ("--data", photos, "--size", 64, *FEW)
    _, out, _ = scfs("overaug", path, *flags)
    assert "top class of the original" in out  # three classes without names, and two of the data
    code, out, err = scfs("overaug", path, *flags, "--class_names", names)
    assert (code, err) == (0, "")
    assert "true class" in out
    assert (tmp_path / "runs" / "overaug-2.png").is_file()
    names.write_text("dogs\ncats\n", encoding="utf-8")
    assert refused(scfs("overaug", path, *flags, "--class_names", names), "names 2 classes and the classifier has 3")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            lambda t: {n: v for n, v in t.items() if not n.startswith("fc.")},
            "it has none of classifier, fc, head, heads",
        ),
        (lambda t: t | {"fc.weight": torch.zeros(3, 100)}, "'fc' is 3 x 100 and 3, not a linear layer on 512 channels"),
        (lambda t: {n: v for n, v in t.items() if n != "fc.bias"}, "its head (fc.weight) is not one linear layer"),
        (lambda t: t | {"fc.2.weight": torch.zeros(3, 3)}, "is not one linear layer"),
        (lambda t: t | {"fc.bias": torch.full((3,), torch.nan)}, "'fc' is not finite everywhere"),
        (lambda t: {f"encoder_q.{n}": v for n, v in t.items()}, "a file of self-supervised learning"),
    ],
)
def test_files_without_a_classifier_are_refused(supervised, photos, scfs, tmp_path, change, reason):
    path = tmp_path / "changed.safetensors"
    save_file(change(supervised[1].state_dict()), path)
    answer = scfs("overaug", path, "--data", photos, "--size", 64)
    assert refused(
        answer, "holds no classifier of backbone 'resnet18'", reason, "give the weights of a whole classifier"
    )


def test_what_cannot_be_compared_is_refused(trained, photos, scfs, tmp_path):
    assert refused(scfs("overaug", trained, "--data", photos), "has no trained probe")
    assert refused(scfs("overaug", "random:resnet18", "--data", photos), "has no classifier", "add --audit")
    assert refused(scfs("overaug", "random:resnet18", "--audit"), "give images with --data")
    assert refused(scfs("overaug", trained, "--audit", "--show", 3), "--show has no effect with --audit;")
    assert refused(scfs("overaug", trained, "--out", "x.txt"), "ends with .png, .svg, .pdf")
    assert refused(scfs("overaug", trained, "--local_scale", 0.5, 0.1), "must be ascending")
    assert refused(scfs("overaug", trained, "--audit", "--images", 1), "give two or more")
    vit = timm.create_model("vit_tiny_patch16_224", num_classes=2)
    save_file(vit.state_dict(), tmp_path / "vit.safetensors")
    answer = scfs("overaug", tmp_path / "vit.safetensors", "--data", photos)
    assert refused(answer, "'vit_tiny_patch16_224' does not pool a map but tokens", "or add --audit")
    assert not (trained / "overaug.png").exists()


@pytest.mark.parametrize("flags", [(), ("--audit",)])
def test_a_picture_is_not_overwritten(probed, photos, scfs, tmp_path, flags):
    picture, before = tmp_path / "mine.png", read_results(probed)
    picture.write_bytes(b"mine")
    answer = scfs("overaug", probed, "--data", photos, *flags, *FEW, "--out", picture)
    assert refused(answer, "mine.png exists and is not overwritten")
    assert picture.read_bytes() == b"mine"
    assert read_results(probed) == before


def test_an_audit_with_masks(trained, scfs):
    code, out, err = scfs("overaug", trained, "--audit", *FEW)
    assert (code, err) == (0, "")
    assert "using the run's own images, scenes:12,8" in out
    assert out.splitlines()[-1].startswith("Advice: ")
    result = read_results(trained)[-1]
    assert (result.evaluation, result.protocol) == ("overaug audit", "32 px, local views of 16 px")
    curves = json.loads(json.dumps(result.details))
    empty = curves["fraction of views in %"]["views without any object"]["values"]
    assert (len(curves["scales"]), len(empty)) == (10, 10)
    assert empty[0] > empty[-1] == 0
    assert (trained / "overaug_audit.png").is_file()


def test_an_audit_of_a_run_without_local_views(trained, scfs):
    """Local views have half the side of its global ones, and pre-training accepts the flags that would make some."""
    config, settings = config_of(str(trained)), trained / "settings.toml"
    values = config.model_dump(mode="json")
    values["views"] |= {"num_local_views": 0, "local_size": 96}
    values["method"] |= {"contrast": "scfs-no-multicrop"}
    settings.unlink()
    write_settings(trained, values)
    code, out, err = scfs("overaug", trained, "--audit", *FEW)
    assert (code, err) == (0, "")
    assert "The run was trained without local views; the audit draws some of half the side of its global ones." in out
    assert "local views of 16 px" in out
    flags = flags_of_new_local_views(str(trained), 16)
    assert flags == "--method.contrast scfs --views.num_local_views 4 --views.local_size 16"
    advised = f"{flags} --views.local_scale 0.1 0.3 --views.global_scale 0.3 1"
    code, _, err = scfs("pretrain", settings, *advised.split(), "--dry-run", "--run.folder", trained.parent / "new")
    assert (code, err) == (0, "")


def test_an_audit_needs_neither_labels_nor_trained_weights(photos, scfs, tmp_path):
    """Any backbone does, a ViT too."""
    for name, size in (("resnet10_half", 32), ("vit_tiny_patch16_224", 48)):
        out = tmp_path / f"{name}.pdf"
        answer = scfs("overaug", f"random:{name}", "--audit", "--data", photos, "--size", size, *FEW, "--out", out)
        assert answer[0] == 0
        assert "the weights are random, so that their similarity means little." in answer[1]
        assert "object" not in answer[1]
        assert out.read_bytes().startswith(b"%PDF")


def test_val_images_are_compared_if_there_are_classes(photos):
    val = open_unseen(DataSettings(source=str(photos)))
    assert len(val) < 12
    assert val.classes == ("cats", "dogs")
    assert len(open_unseen(DataSettings(source=str(photos / "cats")))) == 6


@pytest.mark.parametrize(("listed", "count"), [(("dogs", "birds"), 2), (("birds",), 6)])
def test_only_classes_of_the_list_are_compared(photos, tmp_path, listed, count):
    shutil.copytree(photos / "dogs", photos / "birds")
    (tmp_path / "classes.txt").write_text("\n".join(listed), encoding="utf-8")
    val = open_unseen(DataSettings(source=str(photos), classes=str(tmp_path / "classes.txt")))
    assert (val.classes, len(val)) == (listed, count)


def test_pictures(tmp_path):
    """Names that matplotlib would take for mathematics, few classes, images of any shape, and no suggestion."""
    image = Image.fromarray(np.full((40, 90, 3), 128, np.uint8))
    top = [[("$x^$", 0.75), ("a rather long name of a class", 0.25)]] * 3
    row = ComparedRow(
        image, np.zeros((8, 8, 3), np.uint8), [0.1, 0.2, 0.5, 0.9], np.eye(2, dtype=np.float32), top, "$x^$"
    )
    save_comparison(tmp_path / "new" / "out.png", [row, row], reference="true class")
    with Image.open(tmp_path / "new" / "out.png") as picture:
        drawn = np.asarray(picture.convert("RGB")).reshape(-1, 3)
    for colour in ((0, 114, 178), (213, 94, 0)):  # bars of the expected class, and the box of the view
        assert (drawn == colour).all(axis=1).sum() > 500
    curve = Curve("own", "#0072B2", np.array([0.4, 0.5]), np.array([[0.3, 0.5], [0.4, 0.6]]))
    save_audit(tmp_path / "audit.png", (0.02, 1.0), {"cosine": [curve], "%": [curve]}, levels={0.9: "red"}, ranges={})
    with Image.open(tmp_path / "audit.png") as picture:
        assert picture.width == 1440
