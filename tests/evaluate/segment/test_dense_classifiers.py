"""Dense neighbours and linear layers on maps: against plain loops, and without a backbone."""

import math

import numpy as np
import pytest
import torch
from label_maps import label_map
from torch._subclasses.fake_tensor import FakeTensorMode

from scfs.backbones import Backbone, Loaded, load_backbone
from scfs.data.segmentation import VOID
from scfs.data.segmented_loader import SegmentedViews
from scfs.errors import UserError
from scfs.evaluate.segment.cells import sampled
from scfs.evaluate.segment.iou import SegmentationScore
from scfs.evaluate.segment.linear_layer import Batch, ChannelStatistics, LayerLearner, LinearLayer
from scfs.evaluate.segment.maps import LayerMaps, choose_layers, choose_size
from scfs.evaluate.segment.memory import Memory, MemoryBuilder, choose_positions
from scfs.evaluate.segment.predictions import Predictions, best_classes

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
