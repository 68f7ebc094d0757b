import csv
import os

import pytest
import torch
import torch.nn.functional as F
from stopping import stopping_at
from torch._subclasses.fake_tensor import FakeTensorMode

from scfs.data.selection import hold_out
from scfs.data.sources import read_folder
from scfs.errors import UserError
from scfs.evaluate.accuracy import Accuracy
from scfs.evaluate.linear.probes import Batch, ProbeLearner, Probes
from scfs.evaluate.linear.settings import Linear
from scfs.evaluate.trained_classifier import find_classifier
from scfs.runs import results
from scfs.runs.layout import read_metrics
from scfs.runs.results import read_results
from scfs.training import loop

QUICK = ("--size", 32, "--workers", 0, "--epochs", 5, "--batch_size", 4, "--rates", 0.1, 1.0, "--held_out", 0.3)


def load_probe(run):
    return find_classifier(str(run)).probe


def test_probes_equal_torch_sgd_one_by_one():
    """The reported probes see every image, the choosing ones only those that are not held out."""
    torch.manual_seed(0)
    rates, probes = (0.1, 1.0), Probes(5, 3, (0.1, 1.0))
    start = [(probes.weight[p].detach().clone(), probes.bias[p].detach().clone()) for p in range(4)]
    batches = [(torch.randn(8, 5), torch.randint(3, (8,)), torch.rand(8) < 0.3) for _ in range(6)]
    learner = ProbeLearner(probes, batch_size=8, total_steps=6)
    for step, batch in enumerate(batches):
        learner.step(Batch(*batch), step)
    for p, (weight, bias) in enumerate(start):
        weight, bias = weight.requires_grad_(), bias.requires_grad_()
        plain = torch.optim.SGD([weight, bias], lr=rates[p % 2] * 8 / 256, momentum=0.9)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(plain, 5)
        for features, labels, held in batches:
            seen = ~held if p < 2 else torch.ones_like(held)
            plain.zero_grad()
            F.cross_entropy(features[seen] @ weight.T + bias, labels[seen]).backward()
            plain.step()
            schedule.step()
        torch.testing.assert_close(probes.weight[p], weight)
        torch.testing.assert_close(probes.bias[p], bias)


def test_the_rate_is_chosen_without_test_images():
    probes = Probes(2, 2, (0.1, 1.0, 3.0))
    with torch.no_grad():
        probes.weight.zero_()
        probes.weight[1] = torch.eye(2)  # of the choosing probes the second is right
        probes.weight[5] = torch.eye(2)  # of the reported ones the third
    features, labels = torch.eye(2).repeat(4, 1), torch.tensor([0, 1] * 4)
    assert probes.best_rate(features, labels) == 1
    assert [accuracy.top1 for accuracy in probes.accuracies(features, labels)] == [0.5, 0.5, 1.0]


def test_many_images_are_classified_in_chunks(monkeypatch):
    probes, features, labels = Probes(5, 3, (0.1,)), torch.randn(10, 5), torch.randint(3, (10,))
    whole = [probes.accuracies(features, labels), probes.predicted(0, features).tolist()]
    monkeypatch.setattr("scfs.evaluate.linear.probes.CHUNK", 4)
    assert [probes.accuracies(features, labels), probes.predicted(0, features).tolist()] == whole
    assert whole[1] == probes.logits(features)[1].argmax(dim=-1).tolist()


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_features_that_do_not_fit_on_a_gpu_are_classified_there(monkeypatch, device):
    """Tried on CUDA tensors without values, of which there is no accuracy."""
    monkeypatch.setattr(Accuracy, "of", lambda hits: Accuracy(0.5, float(len(hits))))
    with FakeTensorMode(), torch.device("cuda"):
        probes = Probes(5, 3, (0.1, 1.0))
        features, labels = torch.empty(10, 5, device=device), torch.empty(10, device=device, dtype=torch.long)
        assert probes.best_rate(features, labels) == 0
        assert [each.top5 for each in probes.accuracies(features, labels)] == [10, 10]
        assert probes.predicted(0, features).shape == (10,)


@pytest.mark.parametrize("cached", ["true", "false"])
def test_the_command_and_predict(scfs, trained, photos, tmp_path, cached):
    code, out, err = scfs("linear", trained, "--data", photos, "--cached", cached, *QUICK)
    assert code == 0, err
    assert ("Quick variant" in out) == (cached == "true")
    assert "chosen on held-out train images" in out
    [result] = read_results(trained)
    assert [metric.name for metric in result.metrics] == ["top-1"]
    assert result.protocol == ("cached, " if cached == "true" else "") + "32 px, 5 epochs"
    assert list(result.details) == ["rate 0.1", "rate 1", "confusion"]
    counts = torch.tensor(result.details["confusion"]["counts"])
    assert counts.sum(dim=1).tolist() == [1, 1]  # every fifth of six photos of each class
    assert counts.diagonal().sum() / counts.sum() == pytest.approx(result.metrics[0].value)
    probe = load_probe(trained)
    assert probe.classes == ["cats", "dogs"]
    assert probe.weight.shape == (2, 256)
    assert not list(trained.glob("linear_state*"))

    code, _, err = scfs("predict", trained, photos, tmp_path / "out.csv", "--workers", 0)
    assert code == 0, err
    with (tmp_path / "out.csv").open() as file:
        head, *rows = csv.reader(file)
    assert head == ["image", "class", "probability"]
    assert len(rows) == 12
    assert {row[1] for row in rows} <= {"cats", "dogs"}
    code, _, err = scfs("predict", trained, photos, tmp_path / "out.csv")
    assert code == 2
    assert "exists and is not overwritten" in err


@pytest.mark.parametrize("cached", ["true", "false"])
def test_a_stopped_probe_resumes_exactly(scfs, trained, photos, monkeypatch, steps_of, cached):
    command, steps = ("linear", trained, "--data", photos, "--cached", cached, *QUICK), steps_of(ProbeLearner)
    scfs(*command)
    whole, steps_of_whole = load_probe(trained), [*steps]

    with monkeypatch.context() as patch:
        patch.setattr(loop, "Interrupt", stopping_at(3))
        code, _, err = scfs(*command)
    assert code == 130
    assert "Stopped after step 3; run the same command again to resume." in err
    assert len(list(trained.glob("linear_state*"))) == 1
    code, _, err = scfs(*command, "--seed", 6)  # another probe of the same run does not interfere
    assert code == 0, err
    steps.clear()
    code, _, err = scfs(*command)
    assert code == 0, err
    assert steps == steps_of_whole[3:] != []
    assert (trained / "linear-3.pt").exists()
    assert torch.equal(load_probe(trained).weight, whole.weight)


def test_a_vit_is_probed_on_its_last_class_tokens(scfs, photos):
    code, out, err = scfs("linear", "random:vit_tiny_patch16_224", "--data", photos, "--cached", "true", *QUICK)
    assert code == 0, err
    assert "results" not in out  # there is no run folder to record them in


def test_held_out_images_are_some_of_each_class(photos):
    source = read_folder(photos)
    held = hold_out(source, 0.3, seed=0)
    assert [int(held[:6].sum()), int(held[6:].sum())] == [2, 2]
    assert (hold_out(source, 0.3, seed=0) == held).all()
    assert (hold_out(source, 0.001, seed=0).reshape(2, 6).sum(axis=1) == 1).all()
    assert (hold_out(source, 0.999, seed=0).reshape(2, 6).sum(axis=1) == 5).all()


def test_bad_input_is_one_sentence(scfs, trained, photos, tmp_path):
    for extra in photos.glob("dogs/[1-5].jpg"):
        extra.unlink()
    with pytest.raises(UserError, match="Class 'dogs' has a single labelled image"):
        hold_out(read_folder(photos), 0.1, seed=0)
    code, _, err = scfs("predict", trained, photos)
    assert code == 2
    assert "has no trained probe; train one with: scfs linear" in err
    code, _, err = scfs("predict", tmp_path / "none", photos)
    assert code == 2
    assert "is not a run folder" in err
    assert Linear().batch_size == 1024


def test_a_probe_is_not_used_on_other_weights(scfs, trained, photos):
    assert scfs("linear", trained, "--data", photos, "--network", "student", "--cached", "true", *QUICK)[0] == 0
    code, _, err = scfs("predict", trained, photos)
    assert code == 2
    assert "1 were trained on other weights" in err
    code, _, err = scfs("predict", trained, photos, "--network", "student")
    assert code == 0, err


def test_class_names_may_be_any_bytes(scfs, trained, photos, tmp_path):
    (photos / "cats").rename(photos / os.fsdecode(b"caf\xe9"))
    assert scfs("linear", trained, "--data", photos, "--cached", "true", *QUICK)[0] == 0
    code, _, err = scfs("predict", trained, photos, tmp_path / "out.csv", "--workers", 0)
    assert code == 0, err
    assert "caf\N{REPLACEMENT CHARACTER}" in (tmp_path / "out.csv").read_text(encoding="utf-8")


def test_a_read_only_run_is_scored_all_the_same(scfs, trained, photos, monkeypatch):
    monkeypatch.setattr(results.os, "access", lambda *_: False)  # root may write anywhere
    for command in (("knn", "--k", 2, "--workers", 0), ("linear", "--cached", "true", *QUICK)):
        code, out, err = scfs(command[0], trained, "--data", photos, *command[1:])
        assert code == 0, err
        assert "cannot be written to: nothing will be saved there" in out
        assert "95 % interval" in out
    assert not (trained / "results.json").exists()
    assert not list(trained.glob("linear*"))


def test_probes_are_never_overwritten(scfs, trained, photos):
    command = ("linear", trained, "--data", photos, "--cached", "true", *QUICK)
    for _ in range(2):
        scfs(*command)
    before = (trained / "linear-2.pt").read_bytes()
    (trained / "linear.pt").unlink()
    scfs(*command)
    assert (trained / "linear-2.pt").read_bytes() == before
    assert (trained / "linear-3.pt").exists()


def test_more_blocks_than_there_are(scfs, photos):
    code, _, err = scfs("linear", "random:vit_tiny_patch16_224", "--data", photos, "--blocks", 13, *QUICK)
    assert code == 2
    assert "has 12 blocks; give at most that many" in err


def test_a_rate_that_diverges_is_one_sentence_and_records_nothing(scfs, trained, photos):
    words = ("--cached", "true", *QUICK[:-5], "--rates", 0.1, 1e38, "--held_out", 0.3)
    code, _, err = scfs("linear", trained, "--data", photos, *words)
    assert code == 2
    assert "The probes at rate 1e+38 are no longer finite at step" in err
    assert err.count("\n") == 1
    assert not (trained / "results.json").exists()
    assert not (trained / "linear.pt").exists()


@pytest.mark.parametrize("cached", ["true", "false"])
def test_curves_are_written_next_to_those_of_the_run(scfs, trained, photos, cached):
    before = (trained / "metrics.jsonl").read_bytes()
    command = ("linear", trained, "--data", photos, "--cached", cached, *QUICK)
    for _ in range(2):  # once more: the same curves
        assert scfs(*command)[0] == 0
    [folder] = (path for path in trained.glob("linear_*") if path.is_dir())
    rows = read_metrics(folder)
    assert [row["step"] for row in rows] == [*range(1, 11)]
    assert all({"loss/rate 0.1", "loss/rate 1", "lowest_loss"} < row.keys() for row in rows)
    assert rows[-1]["lowest_loss"] < rows[0]["lowest_loss"]
    assert (folder / "tensorboard").is_dir()
    assert (trained / "metrics.jsonl").read_bytes() == before
