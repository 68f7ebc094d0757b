import math
from importlib import metadata

import pytest
import torch
from torch import nn

from scfs.data.sources import open_labelled
from scfs.errors import UserError
from scfs.evaluate import features
from scfs.evaluate.accuracy import Accuracy
from scfs.evaluate.features import LabelledFeatures, effective_rank, extract
from scfs.evaluate.knn.neighbours import knn_accuracy, nearest
from scfs.runs import checkpoint
from scfs.runs.metric import by_name
from scfs.runs.results import read_results
from scfs.training import cpu


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
        similarity = []
        for key, label in zip(train.features.tolist(), train.labels.tolist(), strict=True):
            dot = sum(a * b for a, b in zip(query, key, strict=True))
            cosine = dot / math.sqrt(sum(a * a for a in query)) / math.sqrt(sum(b * b for b in key))
            similarity.append((cosine, label))
        votes = [0.0] * classes
        for cosine, label in sorted(similarity, reverse=True)[:k]:
            votes[label] += math.exp(cosine / temperature)
        ranking = sorted((c for c in range(classes) if votes[c]), key=lambda c: -votes[c])
        top1 += ranking[0] == truth
        top5 += truth in ranking[:5]
    return top1 / len(val.labels), top5 / len(val.labels)


@pytest.mark.parametrize("temperature", [0.07, 1.0])
def test_accuracy_equals_loops(temperature):
    train, val = sets()
    scores = knn_accuracy(train, val, num_classes=7, ks=(1, 5, 20), temperature=temperature)
    for k, accuracy in scores.items():
        top1, top5 = by_loops(train, val, k, temperature, 7)
        assert accuracy.top1 == pytest.approx(top1)
        assert accuracy.top5 == pytest.approx(top5)


def test_a_class_without_a_vote_is_not_among_the_first_five():
    train = LabelledFeatures(torch.eye(4), torch.tensor([0, 0, 1, 2]))
    val = LabelledFeatures(torch.tensor([[1.0, 0.9, 0.0, 0.0]] * 3), torch.tensor([0, 1, 2]))
    scores = knn_accuracy(train, val, num_classes=5, ks=(1, 2, 4))
    assert [round(scores[k].top5, 3) for k in (1, 2, 4)] == [0.333, 0.333, 1.0]


def test_a_vote_that_underflows_still_counts():
    train = LabelledFeatures(torch.eye(2), torch.tensor([5, 6]))
    val = LabelledFeatures(torch.eye(2)[:1], torch.tensor([6]))
    assert knn_accuracy(train, val, num_classes=7, ks=(2,), temperature=1e-3)[2].top5 == 1.0


def test_a_large_k_uses_all_training_images():
    train, val = sets()
    whole = knn_accuracy(train, val, num_classes=7, ks=(20, 40))
    larger = knn_accuracy(train, val, num_classes=7, ks=(20, 40, 1000))
    assert larger[20] == whole[20]
    assert larger[1000] == larger[40] == whole[40]


@pytest.mark.parametrize(("query_chunk", "key_chunk"), [(1000, 1000), (3, 1000), (1000, 7), (5, 2)])
def test_chunks_find_the_same_neighbours(query_chunk, key_chunk):
    train, val = sets()
    cosines = torch.nn.functional.normalize(val.features) @ torch.nn.functional.normalize(train.features).T
    expected = cosines.topk(9)
    found = list(nearest(val.features, train.features, 9, query_chunk=query_chunk, key_chunk=key_chunk))
    assert [start for start, *_ in found] == list(range(0, len(val.features), query_chunk))
    torch.testing.assert_close(torch.cat([values for _, values, _ in found]), expected.values)
    assert torch.equal(torch.cat([indices for *_, indices in found]), expected.indices)


def test_perfect_features():
    labels = torch.arange(10) % 3
    features = torch.eye(3)[labels]
    same = LabelledFeatures(features, labels)
    assert knn_accuracy(same, same, num_classes=3, ks=(3,))[3] == (1.0, 1.0, (1.0, 1.0), (1.0, 1.0))


def test_the_command(scfs, photos):
    code, out, _ = scfs("knn", "random:resnet10_half", "--data", photos, "--size", 32, "--k", 1, 5, "--workers", 0)
    assert code == 0
    assert "10 train and 2 val images at 32 px" in out
    assert [line.split("│")[1].strip() for line in out.splitlines() if line.startswith("│")] == ["k=1", "k=5"]


def test_k_above_the_number_of_train_images_is_left_out(scfs, photos):
    words = ("knn", "random:resnet10_half", "--data", photos, "--size", 32, "--workers", 0)
    code, out, _ = scfs(*words)
    assert code == 0
    assert "k=20, 100, 200 left out: there are only 10 train images." in out
    assert [line.split("│")[1].strip() for line in out.splitlines() if line.startswith("│")] == ["k=10"]
    code, out, _ = scfs(*words, "--k", 30, 20)
    assert "k=30 left out" in out
    assert "k=20 uses all 10 train images." in out


def test_top_5_needs_six_classes():
    accuracy = Accuracy(0.5, 1.0)
    assert [metric.name for metric in accuracy.metrics(num_classes=5)] == ["top-1"]
    assert [metric.name for metric in accuracy.metrics("k-NN ", num_classes=6)] == ["k-NN top-1", "k-NN top-5"]


def test_layers_results_and_plot(scfs, photos, trained):
    """Every search layer and the final feature in one pass; a ResNet's feature is its pooled last map."""
    options = ("--data", photos, "--size", 32, "--k", 1, 5, "--workers", 0)
    code, _out, _ = scfs("knn", trained, *options, "--layers", "all")
    assert code == 0
    assert (trained / "knn_layers.png").stat().st_size > 3000
    code, _, _ = scfs("knn", trained, *options)
    results = read_results(trained)
    assert [result.evaluation for result in results] == ["knn", "knn"]
    metrics, again = (by_name(result.metrics) for result in results)
    layers = ("layer2 ", "layer3 ", "layer4 ", "")
    assert list(metrics) == [f"{layer}k={k} top-1" for layer in layers for k in (1, 5)]
    assert metrics["layer4 k=1 top-1"].value == metrics["k=1 top-1"].value
    assert metrics["k=1 top-1"] == again["k=1 top-1"]
    assert results[1].settings["size"] == 32
    assert results[1].environment["packages"]["torch"] == metadata.version("torch")


def test_effective_rank():
    assert effective_rank(torch.ones(50, 8)) == pytest.approx(1.0)
    assert effective_rank(torch.eye(8).repeat(4, 1)) == pytest.approx(8.0)
    values = torch.tensor([4.0, 2.0, 1.0, 1.0])
    fractions = [0.5, 0.25, 0.125, 0.125]
    expected = math.exp(-sum(p * math.log(p) for p in fractions))
    assert effective_rank(torch.diag(values)) == pytest.approx(expected)
    assert effective_rank(torch.zeros(5, 3)) == 1.0
    assert effective_rank(torch.full((5, 3), math.nan)) == 0.0


def spoil(run):
    """Make the teacher of a run overflow, with weights that are finite themselves."""
    path = run / "last.pt"
    content = checkpoint.load(path)
    content["method"]["teacher.backbone.net.bn1.weight"].fill_(3e38)
    checkpoint.save(path, content)


@pytest.mark.parametrize("command", ["knn", "linear", "embed"])
def test_features_that_are_not_finite_are_refused(scfs, trained, photos, tmp_path, command):
    spoil(trained)
    words = {"embed": (trained, photos, tmp_path / "out.npy")}.get(command, (trained, "--data", photos))
    code, _, err = scfs(command, *words, "--workers", 0)
    assert code == 2
    assert "images are not finite: the weights are damaged" in err
    assert err.count("\n") == 1
    assert not (trained / "results.json").exists()
    assert not (tmp_path / "out.npy").exists()


@pytest.mark.parametrize("command", ["knn", "linear", "finetune", "embed", "predict"])
def test_all_cores_are_used_under_torchrun(scfs, trained, photos, tmp_path, monkeypatch, command):
    if command == "predict":
        assert scfs("linear", trained, "--data", photos, "--cached", "true", "--epochs", 1, "--workers", 0)[0] == 0
    real, threads = features._extract_shard, []
    monkeypatch.setattr(
        features, "_extract_shard", lambda *args: threads.append(torch.get_num_threads()) or real(*args)
    )
    monkeypatch.setattr(cpu, "num_cores", lambda: 2)
    words = {"embed": (trained, photos, tmp_path / "out.npy"), "predict": (trained, photos)}
    quick = () if command in ("knn", *words) else ("--epochs", 1, "--batch_size", 4, "--rates", 0.1)
    code, _, err = scfs(command, *words.get(command, (trained, "--data", photos)), "--workers", 0, *quick)
    assert code == 0, err
    assert {*threads} == {2}
    assert torch.get_num_threads() == 1


def test_a_failed_pass_leaves_the_training_mode_as_it_was():
    class Failing(nn.Module):
        def forward(self, _):
            raise UserError("no")

    network = Failing().train()
    source, _ = open_labelled("scenes:12,8")
    with pytest.raises(UserError, match="no"):
        extract(network, source, size=32, batch_size=4, workers=0, device=torch.device("cpu"))
    assert network.training
