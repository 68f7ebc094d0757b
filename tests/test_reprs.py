"""What the objects that the API returns show in a notebook or at the prompt: a line each."""

import pytest
import torch
from PIL import Image

import scfs
from scfs.data.selection import every_fifth
from scfs.evaluate.embed import Match
from scfs.evaluate.predict import Prediction
from scfs.exporting.exported import Exported
from scfs.runs.curves import Curve
from scfs.runs.metric import Metric


def test_metrics():
    assert repr([Metric("k-NN top-1", 0.665, (0.634, 0.694))]) == "[k-NN top-1 66.5 % (63.4-69.4)]"
    assert repr(Metric("RankMe", 105.34, unit="")) == "RankMe 105.3"


def test_backbones():
    backbone = scfs.load_backbone("random:resnet10_half")
    text = "resnet10_half, 256 features, maps of layer2, layer3, layer4"
    assert repr(backbone) == f"PretrainedBackbone({text})"
    assert repr(backbone.backbone) == f"Backbone({text})"
    backbone.size = 64
    assert repr(backbone) == f"PretrainedBackbone({text}, trained at 64 px)"


def test_sources(photos):
    train, val = scfs.open_labelled("scenes:30,100")
    assert repr(train) == "SceneSource(30 images, 10 classes)"
    part = every_fifth(val)[1]
    assert repr(part) == f"Subset({len(part)} images, 10 classes)"
    assert repr(scfs.open_images(str(photos))) == "FileSource(12 images, 2 classes)"
    assert repr(scfs.open_images(str(photos / "cats"))) == "FileSource(6 images, without labels)"


def test_views_and_neighbours():
    views = scfs.make_views(Image.new("RGB", (40, 40)), "quickstart")
    assert repr(views) == "ViewBatch(global 2x3x64x64, local 0x3x32x32)"
    features = torch.randn(9, 4)
    assert repr(scfs.nearest_images(features[:2], features, 3)) == "Neighbours(of 2 queries, 3 each)"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (Curve([10, 20], [20.5, 6.25]), "Curve(2 points, 20.5 to 6.25)"),
        (Match(0.83541234, "a.jpg"), "Match(0.8354, 'a.jpg')"),
        (Prediction("a.jpg", "cat", 0.98123), "Prediction('a.jpg', 'cat', 0.981)"),
        (Exported("b.pth", 60, "torchvision", "load", "RGB"), "Exported(b.pth, 60 tensors under torchvision's names)"),
        (Exported("b.pt2", 60, "", "load", "RGB"), "Exported(b.pt2, 60 tensors)"),
    ],
)
def test_other_results(value, shown):
    assert repr(value) == shown
