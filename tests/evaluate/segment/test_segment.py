"""The command `scfs segment`."""

import math
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

import scfs as package
from scfs.data.sources import open_segmented
from scfs.evaluate.compare import latest
from scfs.evaluate.segment import fitting
from scfs.evaluate.segment.linear_layer import LayerLearner
from scfs.evaluate.segment.maps import LayerMaps
from scfs.runs.metric import by_name
from scfs.runs.results import read_results
from scfs.visualize.report.run import read_run
from scfs.visualize.report.sections.results import cells_of, grouped
from tests.test_bad_input import refused

STEPS = ("--steps", 20)
COMMON = ("--size", 64, "--layers", "layer3", "--workers", 0, *STEPS)


def rows(out):
    return {
        cells[1].strip(): [c.strip() for c in cells[2:-1]]
        for line in out.splitlines()
        if len(cells := line.split("│")) > 2
    }


def test_the_command(scfs, tmp_path):
    command = ("segment", "random:resnet10_half", "--data", "scenes:40,20", *COMMON)
    picture = tmp_path / "new" / "picture.png"
    code, out, err = scfs(*command, "--show", 3, "--out", picture)
    assert code == 0, err
    assert "layer3: 4 x 4 positions, 128 channels, of whole images at 64 x 64 px" in out
    assert "40 train and 20 val images at 64 px" in out
    found = rows(out)
    assert list(found) == ["neighbours", "linear"]
    assert all(0 < float(miou) < 40 < float(accuracy) for miou, _, accuracy in found.values())
    assert f"picture  {picture}" in out
    assert picture.stat().st_size > 5000
    assert rows(scfs(*command, "--method", "linear")[1]) == {"linear": found["linear"]}  # deterministic
    code, out, _ = scfs(*command[: -len(STEPS)], "--method", "neighbours", "--memory", 200)
    assert list(rows(out)) == ["neighbours"]
    assert "200 of 640 positions of train maps" in out


def test_maps_that_do_not_fit_in_memory_are_computed_again(scfs, monkeypatch):
    command = ("segment", "random:resnet10_half", "--data", "scenes:24,10", *COMMON, "--method", "linear")
    found = rows(scfs(*command)[1])
    monkeypatch.setattr(fitting, "CACHE_BYTES", 0)
    code, out, _ = scfs(*command)
    assert (code, rows(out)) == (0, found)
    assert "too large to keep" in out


def test_results_of_a_run(scfs, trained):
    """Its own scenes, without --data; recorded, compared and reported."""
    code, out, err = scfs("segment", trained, *COMMON, "--show", 1)
    assert code == 0, err
    assert "No --data given: using the run's own images, scenes:12,8." in out
    [result] = read_results(trained)
    metrics = by_name(result.metrics)
    methods = [f"{name} {metric}" for name in ("neighbours", "linear") for metric in ("mIoU", "pixel accuracy")]
    assert list(metrics) == methods
    assert metrics["linear mIoU"].interval[0] <= metrics["linear mIoU"].value <= metrics["linear mIoU"].interval[1]
    assert result.protocol == "layer3, 64 px, 20 steps, temperature 0.02"
    assert len(result.details["linear"]["IoU"]) == 11
    assert (trained / "segment.png").stat().st_size > 3000
    assert not list(trained.glob("segment_state*"))
    assert [len(list(trained.glob(name))) for name in ("segment_*", "segment_*/metrics.jsonl")] == [1, 1]
    [members] = grouped([read_run(trained, "trained")]).values()
    assert set(cells_of(members, is_one=True)) == set(methods)
    assert [measure.metric for measure in latest(trained)] == methods
    assert scfs("segment", trained, *COMMON, "--k", 5)[0] == 0
    assert read_results(trained)[1].protocol == "layer3, k 5, 64 px, 20 steps, temperature 0.02"


def test_a_stopped_training_resumes(scfs, trained, monkeypatch):
    assert scfs("segment", trained, *COMMON)[0] == 0
    real = LayerLearner.step

    def stop(learner, batch, step):
        if step == 12:
            raise KeyboardInterrupt
        return real(learner, batch, step)

    monkeypatch.setattr("scfs.training.resumable.SAVE_SECONDS", 0.0)
    monkeypatch.setattr(LayerLearner, "step", stop)
    assert scfs("segment", trained, *COMMON)[0] == 130
    assert len(list(trained.glob("segment_state*"))) == 1
    steps = []
    monkeypatch.setattr(LayerLearner, "step", lambda *args: steps.append(args[-1]) or real(*args))
    assert scfs("segment", trained, *COMMON)[0] == 0
    assert steps == list(range(12, 20))
    first, second = read_results(trained)
    assert first.metrics == second.metrics


def test_two_processes_are_the_same(scfs):
    command = ("segment", "random:resnet10_half", "--data", "scenes:13,9", *COMMON, "--memory", 100)
    one = rows(scfs(*command)[1])
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "scfs"]
    done = subprocess.run([*torchrun, *map(str, command)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("maps     layer3") == 1  # only rank zero prints
    two = rows(done.stdout)
    assert list(two) == list(one) == ["neighbours", "linear"]
    for name, (miou, _, accuracy) in one.items():
        assert [float(two[name][0]), float(two[name][2])] == pytest.approx([float(miou), float(accuracy)], abs=0.2)


def test_from_python():
    settings = {"data": "scenes:12,8", "size": 64, "layers": "layer3", "method": "neighbours", "workers": 0}
    metrics = package.segment("random:resnet10_half", **settings)
    assert [metric.name for metric in metrics] == ["neighbours mIoU", "neighbours pixel accuracy"]


# Bad input


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--data", "somewhere"), ("'somewhere' has no label maps",)),
        ((), ("is not a run with its own images", "--data: scenes")),
        (("--data", "scenes:8,4", "--layers", "layer9"), ("has no layer 'layer9'; it has", "layer4")),
        (("--data", "scenes:8,4", "--out", "x.png"), ("--out x.png", "--show")),
        (("--data", "scenes:8,4", "--show", 1, "--out", "x.txt"), ("--out x.txt", "ends with .png")),
        (("--data", "scenes:8,4", "--method", "kn"), ("method",)),
    ],
)
def test_mistakes(scfs, flags, words):
    assert refused(scfs("segment", "random:resnet10_half", *flags), *words)


def test_a_picture_is_not_overwritten(scfs, tmp_path):
    picture = tmp_path / "mine.png"
    picture.write_bytes(b"mine")
    answer = scfs("segment", "random:resnet10_half", "--data", "scenes:8,4", *COMMON, "--show", 1, "--out", picture)
    assert refused(answer, "mine.png exists and is not overwritten")
    assert answer[1] == ""  # before any work
    assert picture.read_bytes() == b"mine"


def test_weights_that_are_not_finite(scfs, monkeypatch):
    real = LayerMaps.forward
    monkeypatch.setattr(LayerMaps, "forward", lambda *args: real(*args) * math.nan)
    command = ("segment", "random:resnet10_half", "--data", "scenes:8,4", *COMMON)
    assert refused(scfs(*command), "The features of 8 of 8 images are not finite: the weights are damaged")


def test_unreadable_maps_are_left_out(scfs, tmp_path):
    year = write_voc(tmp_path, 24, 24)
    bad = year / "SegmentationClass" / "000003.png"
    Image.fromarray(np.full((9, 9), 200, np.uint8)).save(bad)
    command = ("segment", "random:resnet10_half", "--data", f"voc:{year}", *COMMON)
    code, out, err = scfs(*command)
    assert code == 0, err
    assert out.count("Unreadable, left out") == 1
    assert f"{bad}: it has class 200" in out.replace("\n", "")
    assert (
        "linear: mean of 11 classes; 10 are neither in val nor predicted." in out
    )  # scenes have 10 classes, VOC has 20
    damaged = bad.read_bytes()
    for number in range(24):
        (year / "SegmentationClass" / f"{number:06d}.png").write_bytes(damaged)
    assert refused(scfs(*command), "24 of 24 images cannot be read")


def write_voc(root, num_train, num_val):
    """Photos in VOC's layout, each with the map of a scene."""
    year = root / "VOC2007"
    for name in ("JPEGImages", "SegmentationClass", "ImageSets/Segmentation"):
        (year / name).mkdir(parents=True)
    source, _ = open_segmented(f"scenes:{num_train + num_val},1")
    for number in range(num_train + num_val):
        source.image(number).save(year / "JPEGImages" / f"{number:06d}.jpg")
        Image.fromarray(source.label_map(number)).save(year / "SegmentationClass" / f"{number:06d}.png")
    splits = {"train": range(num_train), "val": range(num_train, num_train + num_val)}
    for split, numbers in splits.items():
        names = "".join(f"{number:06d}\n" for number in numbers)
        (year / "ImageSets" / "Segmentation" / f"{split}.txt").write_text(names)
    return year
