import math

import pytest
import torch

from scfs.evaluate.features import LabelledFeatures
from scfs.evaluate.knn import knn_accuracy


def sets(num_train=40, num_val=17, dim=6, classes=7):
    generator = torch.Generator().manual_seed(0)
    return tuple(
        LabelledFeatures(
            torch.randn(count, dim, generator=generator), torch.randint(classes, (count,), generator=generator)
        )
        for count in (num_train, num_val)
    )


def by_loops(train, val, k, temperature, classes):
    top1 = top5 = 0
    for query, truth in zip(val.features.tolist(), val.labels.tolist(), strict=True):
        likeness = []
        for key, label in zip(train.features.tolist(), train.labels.tolist(), strict=True):
            dot = sum(a * b for a, b in zip(query, key, strict=True))
            cosine = dot / math.sqrt(sum(a * a for a in query)) / math.sqrt(sum(b * b for b in key))
            likeness.append((cosine, label))
        votes = [0.0] * classes
        for cosine, label in sorted(likeness, reverse=True)[:k]:
            votes[label] += math.exp(cosine / temperature)
        ranking = sorted(range(classes), key=lambda c: -votes[c])
        top1 += ranking[0] == truth
        top5 += truth in ranking[:5]
    return top1 / len(val.labels), top5 / len(val.labels)


@pytest.mark.parametrize("temperature", [0.07, 1.0])
def test_against_loops(temperature):
    train, val = sets()
    scores = knn_accuracy(train, val, num_classes=7, ks=(1, 5, 20), temperature=temperature)
    for k, accuracy in scores.items():
        top1, top5 = by_loops(train, val, k, temperature, 7)
        assert accuracy.top1 == pytest.approx(top1)
        if k == 20:  # fewer neighbours leave ties of no votes at all
            assert accuracy.top5 == pytest.approx(top5)


def test_chunks_and_large_k_change_nothing():
    train, val = sets()
    whole = knn_accuracy(train, val, num_classes=7, ks=(20, 40))
    parts = knn_accuracy(train, val, num_classes=7, ks=(20, 40, 1000), chunk=3)
    assert parts[20] == whole[20]
    assert parts[1000] == parts[40] == whole[40]


def test_perfect_features():
    labels = torch.arange(10) % 3
    features = torch.eye(3)[labels]
    same = LabelledFeatures(features, labels)
    assert knn_accuracy(same, same, num_classes=3, ks=(3,))[3] == (1.0, 1.0)


def test_the_command(scfs, photos):
    code, out, _ = scfs("knn", "random:resnet10_half", "--data", photos, "--size", 32, "--k", 1, 5, "--workers", 0)
    assert code == 0
    assert "10 train and 2 val images at 32 px" in out
    assert [line.split("│")[1].strip() for line in out.splitlines() if line.startswith("│")] == ["1", "5"]
