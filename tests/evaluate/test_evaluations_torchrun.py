"""Evaluations under torchrun, as users start them: the same metrics as with one process."""

import subprocess
import sys

import torch

from scfs.runs import checkpoint
from scfs.runs.backbone_record import FINE_TUNED, read_records
from scfs.runs.layout import read_metrics
from scfs.runs.results import read_results

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "scfs"]
COMMON = ("--size", 32, "--workers", 0, "--epochs", 2, "--batch_size", 4, "--held_out", 0.3)


def under_torchrun(*words):
    done = subprocess.run([*TORCHRUN, *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_probes_are_the_same(scfs, trained, photos):
    command = ("linear", trained, "--data", photos, *COMMON, "--rates", 0.1, 1.0)
    assert scfs(*command)[0] == 0
    assert under_torchrun(*command).count("chosen on held-out") == 1  # only rank zero prints
    one, two = (checkpoint.load(trained / name)["linear"] for name in ("linear.pt", "linear-2.pt"))
    torch.testing.assert_close(two["weight"], one["weight"], rtol=1e-4, atol=1e-5)
    first, second = read_results(trained)
    assert first.metrics == second.metrics


def test_fine_tuned_networks_are_the_same(scfs, trained, photos, tmp_path):
    command = ("finetune", trained, "--data", photos, *COMMON, "--rates", 0.01, 0.02, "--weight_decays", 0.001)
    assert scfs(*command, "--out", tmp_path / "one")[0] == 0
    under_torchrun(*command, "--out", tmp_path / "two")
    saved = [read_records(checkpoint.load(tmp_path / name / "last.pt")) for name in ("one", "two")]
    one, two = (records[FINE_TUNED].tensors for records in saved)
    start = read_records(checkpoint.load(trained / "last.pt"))["teacher"].tensors
    for name, weight in one.items():
        torch.testing.assert_close(two[name], weight, rtol=1e-3, atol=1e-4)
    assert not torch.allclose(one["conv1.weight"], start["conv1.weight"], rtol=1e-3, atol=1e-4)


def test_a_detector_is_trained_and_scored_by_all_processes(tmp_path):
    """Regions are sampled in each process by itself, so the metrics are not those of one process."""
    size = ("--channels", 16, "--regions", 8, "--sizes", 64, "--workers", 0, "--device", "cpu")
    data = ("--data", "scenes:8,3", "--batch_size", 4, "--accumulate", 2, "--steps", 2)
    out = under_torchrun("detect", "random:resnet10_half", *data, *size, "--out", tmp_path / "out")
    assert out.count("Training mask-rcnn-fpn") == 1
    [result] = read_results(tmp_path / "out")
    assert len(result.metrics) == 6
    assert all(0 <= metric.value <= 1 for metric in result.metrics)
    assert [row["step"] for row in read_metrics(tmp_path / "out")] == [1, 2]
