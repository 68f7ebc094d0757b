"""Feature augmentations against plain loops, and what they may not change."""

import math

import pytest
import torch
import torch.nn.functional as F

from scfs.backbones import Backbone
from scfs.data.views import normalize
from scfs.evaluate.linear.probe_file import Probe
from scfs.runs.metric import by_name
from scfs.visualize.overaug.classifier import MapClassifier
from scfs.visualize.overaug.probabilities import (
    Compared,
    compare,
    feature_augmentations,
    metrics_of,
    scores,
    top_classes,
)

CLASSES = ["cat", "dog", "fox", "owl", "hen", "bee"]


def classifier_of(name):
    torch.manual_seed(0)
    backbone = Backbone(name).eval()
    weight = torch.randn(len(CLASSES), backbone.num_features)
    return MapClassifier(backbone, Probe(weight, torch.randn(len(CLASSES)), CLASSES, 64, 0, ""))


def noise(*shape):
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(1))


def test_comparison_equals_loops():
    """Eqs. 7-9 as loops over positions and channels, then average pooling and the linear classifier."""
    classifier, original, views = classifier_of("resnet10_half"), noise(3, 96, 96), noise(2, 3, 48, 48)
    found = compare(classifier, original, views)
    with torch.no_grad():
        _, maps = classifier.backbone(normalize(original[None]))
        _, view_maps = classifier.backbone(normalize(views))
    keys, num_channels = maps[-1][0].double().tolist(), maps[-1].shape[1]
    height, width = maps[-1].shape[-2:]
    assert height * width > 1
    for number, view_map in enumerate(view_maps[-1].double().tolist()):
        query = [sum(map(sum, channel)) / (len(channel) * len(channel[0])) for channel in view_map]
        pooled, total = [0.0] * num_channels, 0.0
        for y in range(height):
            for x in range(width):
                key = [channel[y][x] for channel in keys]
                product = sum(a * b for a, b in zip(query, key, strict=True))
                cosine = product / math.sqrt(sum(a * a for a in query) * sum(b * b for b in key))
                assert float(found.attention[number, y, x]) == pytest.approx(cosine, abs=1e-5)
                pooled = [value + cosine * level for value, level in zip(pooled, key, strict=True)]
                total += abs(cosine)
        expected = classifier.probe(torch.tensor([[value / total for value in pooled]]).float())[0]
        torch.testing.assert_close(found.augmented[number], expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", ["resnet10_half", "convnext_atto", "swin_s3_tiny_224", "mobilenetv3_small_050"])
def test_a_map_is_pooled_as_the_network_does(name):
    """Also by heads with a norm, with channels last, or with a layer after pooling."""
    classifier, images = classifier_of(name), noise(2, 3, 224, 224)
    with torch.no_grad():
        expected = classifier.probe(classifier.backbone(normalize(images))[0])
    maps = classifier.maps(images)
    torch.testing.assert_close(classifier.probabilities(maps), expected)
    ones = torch.ones(1, *maps.shape[-2:])
    assert torch.equal(feature_augmentations(maps[0], ones), maps[:1])
    assert torch.equal(
        classifier.probabilities(feature_augmentations(maps[0], ones)), classifier.probabilities(maps[:1])
    )


def test_only_the_proportions_of_attention_count():
    maps, attention = torch.randn(5, 3, 4), torch.rand(2, 3, 4)
    found = feature_augmentations(maps, attention)
    torch.testing.assert_close(feature_augmentations(maps, 0.1 * attention), found)
    weighted = (attention.unsqueeze(1) * maps).sum(dim=(-2, -1)) / attention.sum(dim=(-2, -1)).unsqueeze(1)
    torch.testing.assert_close(found.mean(dim=(-2, -1)), weighted)
    assert (found.mean(dim=(-2, -1)).norm(dim=1) <= maps.norm(dim=0).max()).all()


def test_attention_that_adds_up_to_nothing_is_finite():
    maps = torch.randn(5, 1, 2)
    balanced = feature_augmentations(maps, torch.tensor([[[0.5, -0.5]]]))
    torch.testing.assert_close(balanced, torch.stack([maps[..., 0], -maps[..., 1]], dim=-1)[None])
    assert torch.equal(feature_augmentations(maps, torch.zeros(1, 1, 2)), torch.zeros(1, 5, 1, 2))


def test_scores_and_metrics():
    original = torch.tensor([0.7, 0.2, 0.1])
    views, augmented = (
        torch.tensor([[0.1, 0.8, 0.1], [0.5, 0.3, 0.2]]),
        torch.tensor([[0.6, 0.3, 0.1], [0.4, 0.5, 0.1]]),
    )
    row = scores(Compared(original, views, augmented, torch.zeros(2, 1, 1)), 1)
    assert row == pytest.approx([0.55, 0.2, 0.4, 0.5, 0.5])
    metrics = by_name(metrics_of([row, [0.0, 1.0, 0.0, 0.5, 1.0]]))
    assert metrics["view probability"].value == pytest.approx(0.275)
    assert metrics["original probability"].value == pytest.approx(0.6)
    assert metrics["feature augmentation top-1 agreement"].value == pytest.approx(0.75)
    assert metrics["view top-1 agreement"].interval == pytest.approx((0.5, 0.5))
    low, high = metrics["original probability"].interval
    assert 0.2 <= low < 0.3 < 0.9 < high <= 1.0


def test_top_classes():
    probabilities = F.one_hot(torch.tensor(2), 6) * 0.5 + 0.01 * torch.arange(6)
    names = [name for name, _ in top_classes(probabilities, CLASSES)]
    assert names == ["fox", "bee", "hen", "owl", "dog"]
    assert len(top_classes(probabilities[:3], CLASSES[:3])) == 3
