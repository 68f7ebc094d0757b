"""Maps scored by the class of every pixel: against plain loops, without a backbone, and by the command."""

import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image
from torch._subclasses.fake_tensor import FakeTensorMode

import scfs as package
from scfs.backbones import Backbone, Loaded, load_backbone
from scfs.data.segmentation import VOID
from scfs.data.segmented_loader import SegmentedViews
from scfs.data.sources import open_segmented
from scfs.errors import UserError
from scfs.evaluate.compare import latest
from scfs.evaluate.segment import fitting
from scfs.evaluate.segment.cells import class_fractions, sampled
from scfs.evaluate.segment.iou import SegmentationScore, count_pixels
from scfs.evaluate.segment.linear_layer import Batch, ChannelStatistics, LayerLearner, LinearLayer
from scfs.evaluate.segment.maps import LayerMaps, choose_layers, choose_size
from scfs.evaluate.segment.memory import Memory, MemoryBuilder, choose_positions
from scfs.evaluate.segment.predictions import Predictions, best_classes
from scfs.runs.metric import by_name
from scfs.runs.results import read_results
from scfs.visualize.report.run import read_run
from scfs.visualize.report.sections.results import cells_of, grouped
from tests.test_bad_input import refused

STEPS = ("--steps", 20)
COMMON = ("--size", 64, "--layers", "layer3", "--workers", 0, *STEPS)


def label_map(seed, shape, classes=4, void=0.1):
    random = np.random.default_rng(seed)
    labels = random.integers(0, classes, shape).astype(np.uint8)
    labels[random.uniform(size=shape) < void] = VOID
    return labels


# mIoU


def test_miou_equals_loops():
    truths, found = (
        [label_map(seed, (7, 9), void=void) for seed in seeds] for seeds, void in ((range(3), 0.2), (range(3, 6), 0))
    )
    counts = np.stack([count_pixels(t, p, 6) for t, p in zip(truths, found, strict=True)])
    score = SegmentationScore.of(counts)
    expected, right, kept = [], 0, 0
    for label in range(6):
        both = either = 0
        for t, p in zip(np.concatenate(truths).ravel().tolist(), np.concatenate(found).ravel().tolist(), strict=True):
            if t != VOID:
                both += t == p == label
                either += label in (t, p)
                right, kept = right + (label == 0 and t == p), kept + (label == 0)
        expected.append(both / either if either else math.nan)
    assert score.per_class == pytest.approx(expected, nan_ok=True)
    assert [math.isnan(value) for value in expected] == [False] * 4 + [True] * 2  # 4 and 5 do not occur
    assert score.miou == pytest.approx(sum(expected[:4]) / 4)
    assert score.accuracy == pytest.approx(right / kept)
    assert score.absent("abcdef") == ["e", "f"]
    assert score.by_class("abcdef")["f"] is None


def test_a_class_that_is_only_predicted_counts():
    counts = count_pixels(np.array([[0, 0, 1, 1]]), np.array([[0, 2, 1, 1]]), 4)
    assert counts.tolist() == [[1, 2, 0, 0], [2, 2, 0, 0], [1, 2, 1, 0]]
    assert SegmentationScore.of(counts[None]).miou == pytest.approx((1 / 2 + 1 + 0) / 3)


def test_the_interval_is_over_images():
    good, bad = count_pixels(np.zeros((1, 4), int), np.zeros((1, 4), int), 3), np.array([[0] * 3, [4, 0, 0], [0, 4, 0]])
    same = SegmentationScore.of(np.stack([good] * 8))
    assert (same.miou, same.interval) == (1.0, pytest.approx((1.0, 1.0)))
    for count in (4, 64):
        score = SegmentationScore.of(np.stack([good, bad] * count))
        assert score.miou == pytest.approx(0.25)  # half of the background, nothing of the other class
        # Half of the fraction of good images, which varies as a mean of 2 `count` coins.
        assert np.diff(score.interval) == pytest.approx(2 * 1.96 * 0.5 * 0.5 / math.sqrt(2 * count), rel=0.15)
        assert np.mean(score.interval) == pytest.approx(0.25, abs=0.01)
        assert SegmentationScore.of(np.stack([good, bad] * count)).interval == score.interval
        assert SegmentationScore.of(np.stack([good, bad] * count), seed=1).interval != score.interval


def test_classes_of_a_single_image_do_not_move_the_interval():
    """Where images are drawn, such a class is missing from a third of the draws, and the others' mean is another."""
    usual = count_pixels(np.zeros((1, 4), int), np.zeros((1, 4), int), 2)
    score = SegmentationScore.of(np.stack([usual] * 9 + [np.array([[0, 0], [0, 4], [4, 0]])]))
    assert score.interval[0] < score.miou < score.interval[1] < 0.5


# Cells


def test_class_fractions_equal_loops():
    labels = label_map(0, (11, 7), void=0.5)
    labels[:4, :4] = VOID
    fractions = class_fractions(labels, (3, 2), 5)
    for row in range(3):
        for column in range(2):
            cell = [
                labels[y, x]
                for y in range(11)
                for x in range(7)
                if (y * 3 // 11, x * 2 // 7) == (row, column) and labels[y, x] != VOID
            ]
            expected = [cell.count(label) / max(1, len(cell)) for label in range(5)]
            assert fractions[row * 2 + column].tolist() == pytest.approx(expected)
    assert fractions[0].sum() == 0


def test_labels_are_sampled_in_the_middle_of_cells():
    labels = np.arange(6 * 9).reshape(6, 9).astype(np.uint8)
    assert torch.equal(sampled(labels, (2, 3)), torch.from_numpy(labels[1::3, 1::3]))
    assert torch.equal(sampled(labels, (12, 9)), torch.from_numpy(labels.repeat(2, axis=0)))
    assert sampled(np.full((1, 1), VOID, np.uint8), (2, 2)).tolist() == [[VOID] * 2] * 2


# Dense neighbours


def test_votes_equal_loops():
    generator = torch.Generator().manual_seed(0)
    maps, features = torch.randn(2, 5, 3, 2, generator=generator), torch.randn(40, 5, generator=generator)
    fractions = torch.rand(40, 4, generator=generator)
    found = Memory(features, fractions).votes(maps, k=7, temperature=0.1)
    assert found.shape == (2, 4, 3, 2)
    for image in range(2):
        for y in range(3):
            for x in range(2):
                query, near = maps[image, :, y, x].tolist(), []
                for row, key in enumerate(features.tolist()):
                    dot = sum(a * b for a, b in zip(query, key, strict=True))
                    near.append((dot / math.hypot(*query) / math.hypot(*key), row))
                near = sorted(near, reverse=True)[:7]
                weights = [math.exp(cosine / 0.1) for cosine, _ in near]
                for label in range(4):
                    vote = sum(w * float(fractions[row, label]) for w, (_, row) in zip(weights, near, strict=True))
                    assert float(found[image, label, y, x]) == pytest.approx(vote / sum(weights), rel=1e-4)


def test_more_neighbours_than_positions_are_all_of_them():
    memory = Memory(torch.eye(3), torch.eye(3))
    votes = memory.votes(torch.eye(3).view(3, 3, 1, 1), k=30, temperature=1.0)
    assert votes.flatten(1)[0].tolist() == pytest.approx([math.e / (math.e + 2)] + [1 / (math.e + 2)] * 2)


def test_rare_classes_stay_in_a_memory_that_is_too_small():
    fractions = torch.zeros(256, 3)
    fractions[:, 0] = 1
    fractions[[7, 99]] = torch.tensor([0.0, 1.0, 0.0])
    fractions[200:] = 0  # void
    chosen = [choose_positions(fractions, 20, seed) for seed in range(20)]
    assert all(len(each) == 20 and each.tolist() == sorted({*each.tolist()}) and each.max() < 200 for each in chosen)
    assert np.mean([{7, 99} <= {*each.tolist()} for each in chosen]) > 0.9  # by chance in 1 % of the cases
    assert torch.equal(chosen[3], choose_positions(fractions, 20, 3))
    assert not torch.equal(chosen[3], chosen[4])
    assert choose_positions(fractions, 200, 0).tolist() == list(range(200))


@pytest.mark.parametrize("num_images", [3, 7, 10, 23])
def test_every_image_gives_about_the_same_to_the_memory(num_images):
    builder = MemoryBuilder(num_classes=4, num_images=num_images, limit=10, seed=0)
    for index in range(num_images):
        builder.add(index, torch.randn(5, 4, 4), label_map(index, (9, 9), void=0))
    assert builder.build(torch.device("cpu")).features.shape == (10, 5)
    assert {len(rows.features) for rows in builder.rows.values()} <= {10 // num_images, 10 // num_images + 1}


def test_neighbours_vote_on_a_gpu(monkeypatch):
    """Tried on CUDA tensors without values: how many keys are selected is unknown there, so it is k."""
    monkeypatch.setattr(
        "scfs.evaluate.knn.neighbours._selected",
        lambda values, _: (values.new_empty(values.shape[1], 3), values.new_empty(values.shape[1], 3).long()),
    )
    builder, cuda = MemoryBuilder(num_classes=4, num_images=2, limit=10, seed=0), torch.device("cuda")
    for index in range(2):
        builder.add(index, torch.randn(5, 4, 4), label_map(index, (9, 9)))
    with FakeTensorMode(allow_non_fake_inputs=True):
        votes = builder.build(cuda).votes(torch.empty(2, 5, 4, 4, device=cuda), k=3, temperature=0.1)
    assert votes.device.type == "cuda"
    assert votes.shape == (2, 4, 4, 4)


# Without a backbone


def one_hot_maps(labels, size=8):
    """Maps whose features are the classes themselves."""
    cells = torch.stack([sampled(each, (size, size)) for each in labels]).long()
    return torch.nn.functional.one_hot(cells, 4).movedim(-1, 1).float()


def blocks(seed, cells=8, zoom=4):
    """A label map that is constant in each cell of the maps."""
    return label_map(seed, (cells, cells), void=0).repeat(zoom, axis=0).repeat(zoom, axis=1)


def classifiers(maps, labels, k=5):
    """Both methods, from the maps and labels of train images."""
    builder, statistics = (
        MemoryBuilder(num_classes=4, num_images=len(maps), limit=10_000, seed=0),
        ChannelStatistics(maps.shape[1], maps.device),
    )
    for index, (each, truth) in enumerate(zip(maps, labels, strict=True)):
        builder.add(index, each, truth)
    memory = builder.build(maps.device)
    statistics.add(maps)
    layer = LinearLayer(*statistics.build(), 4)
    learner = LayerLearner(layer, lr=1.0, total_steps=60, alone=True)
    batch = Batch(maps, torch.stack([sampled(each, maps.shape[-2:]) for each in labels]))
    for step in range(60):
        learner.step(batch, step)
    return {"neighbours": lambda x: memory.votes(x, k=k, temperature=0.02), "linear": layer}


def scores(found, labels, maps):
    predictions = Predictions(found, num_classes=4, shown=[])
    predictions.add(SegmentedViews([*range(len(maps))], maps, labels, [""] * len(maps)), maps)
    images = predictions.gathered()
    return {name: SegmentationScore.of(np.stack([each.counts[name] for each in images.values()])) for name in found}


def test_maps_of_the_labels_are_perfect_and_noise_is_chance():
    train, val = [blocks(seed) for seed in range(6)], [blocks(seed) for seed in range(6, 10)]
    at_cells = [each[::4, ::4].copy() for each in val]  # where nothing is between two positions
    perfect = scores(classifiers(one_hot_maps(train), train), at_cells, one_hot_maps(val))
    for score in perfect.values():
        assert (score.miou, score.accuracy) == (1.0, 1.0)
    upsampled = scores(classifiers(one_hot_maps(train), train), val, one_hot_maps(val))
    assert all(0.7 < score.miou < 1 for score in upsampled.values())  # bilinear upsampling rounds corners
    generator = torch.Generator().manual_seed(0)
    noise = [torch.randn(len(each), 16, 8, 8, generator=generator) for each in (train, val)]
    for score in scores(classifiers(noise[0], train, k=30), at_cells, noise[1]).values():
        assert 0.15 < score.accuracy < 0.35  # of four classes
        assert score.miou < 0.22


def test_classes_that_cannot_win_are_skipped_without_a_difference():
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        sharp = (
            3 * torch.randn(12, 4, 5, generator=generator) + 4 * torch.randn(12, 1, 1, generator=generator)
        ).softmax(0)
        whole = torch.nn.functional.interpolate(sharp[None], (31, 17), mode="bilinear", align_corners=False)[0]
        assert np.array_equal(best_classes(sharp, (31, 17)), whole.argmax(0).numpy())
    between = torch.tensor([[[1.0, 0.0]], [[0.9, 0.9]], [[0.0, 1.0]], [[0.8, 0.8]]])  # the best of no position
    assert best_classes(between, (1, 8)).tolist() == [[0, 0, 1, 1, 1, 1, 2, 2]]
    assert best_classes(torch.zeros(3, 2, 2), (4, 4)).shape == (4, 4)


def test_void_and_unreadable_images_teach_nothing():
    maps, labels = torch.randn(2, 6, 4, 4, generator=torch.Generator().manual_seed(0)), label_map(0, (2, 8, 8))
    batch = Batch(maps, torch.from_numpy(labels))

    def trained(batch):
        learner = LayerLearner(LinearLayer(torch.zeros(6), torch.ones(6), 4), lr=0.5, total_steps=5, alone=True)
        for step in range(5):
            learner.step(batch, step)
        return learner.layer.conv.weight

    void = torch.full((1, 8, 8), VOID, dtype=torch.uint8)
    more = Batch(torch.cat([maps, 9 * maps[:1]]), torch.cat([batch.labels, void]))
    torch.testing.assert_close(trained(more), trained(batch))
    assert trained(batch).abs().max() > 0.01
    assert trained(Batch(maps[:1], void)).abs().max() == 0


def test_statistics_of_channels():
    maps = torch.randn(5, 3, 4, 6, generator=torch.Generator().manual_seed(0)) * 3 + 7
    statistics = ChannelStatistics(3, maps.device)
    for part in maps.split(2):
        statistics.add(part)
    mean, std = statistics.build()
    torch.testing.assert_close(mean, maps.mean(dim=(0, 2, 3)))
    torch.testing.assert_close(std, maps.std(dim=(0, 2, 3), correction=0))


# Maps of a backbone


def test_layers_together():
    loaded = load_backbone("random:resnet10_half")
    network, images = LayerMaps(loaded.backbone, ["layer4", "layer2"]).eval(), torch.randn(2, 3, 64, 64)
    assert (network.layers, network.num_channels, network.shape(64)) == (["layer2", "layer4"], 64 + 256, (8, 8))
    with torch.no_grad():
        maps = network(images)
        layer2, _, layer4 = loaded.backbone.eval()(images)[1]
    assert maps.shape == (2, 320, 8, 8)
    normalize = torch.nn.functional.normalize
    torch.testing.assert_close(maps[:, :64], normalize(layer2, dim=1))
    larger = torch.nn.functional.interpolate(layer4, (8, 8), mode="bilinear", align_corners=False)
    torch.testing.assert_close(maps[:, 64:], normalize(larger, dim=1))


@pytest.mark.parametrize(
    ("name", "layers", "size", "side"),
    [
        ("resnet10_half", ["layer3", "layer4"], 256, 16),
        ("resnet10_half", ["layer4"], 512, 16),
        ("resnet10_half", ["layer2"], 224, 28),  # 16 positions would need 128 px, and 224 are usual
        ("vit_tiny_patch16_224", ["blocks.8", "blocks.11"], 256, 16),
    ],
)
def test_the_automatic_size_gives_16_positions(name, layers, size, side):
    with torch.device("meta"):
        loaded = Loaded(Backbone(name), None)
    assert choose_size(loaded, layers, "auto") == size
    assert LayerMaps(loaded.backbone, layers).shape(size) == (side, side)
    assert choose_size(loaded, layers, 64) == 64
    assert choose_size(loaded._replace(size=640), layers, "auto") == 640  # as in training


def test_a_network_of_one_size_gets_it(monkeypatch):
    def only_224(_, *sizes):
        if sizes != (224,):
            raise UserError("no")

    monkeypatch.setattr("scfs.backbones.Backbone.check_sizes", only_224)
    assert choose_size(load_backbone("random:resnet10_half"), ["layer4"], "auto") == 224


def test_automatic_layers_are_the_two_deepest():
    backbone = load_backbone("random:resnet10_half").backbone
    assert choose_layers(backbone, "auto") == ["layer3", "layer4"]
    assert choose_layers(backbone, ("layer2",)) == ("layer2",)


# The command


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
