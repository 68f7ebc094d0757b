"""What the networks of runs make of photos: features, attention, colours of maps and k-NN by layer, as arrays."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from rich.console import Console
from rich.progress import Progress
from torch import Tensor, nn

from scfs.backbones import Backbone, load_backbone, load_weights
from scfs.config import Config
from scfs.data.loader import num_workers
from scfs.data.sources import Source, open_labelled
from scfs.errors import UserError
from scfs.evaluate.accuracy import Accuracy
from scfs.evaluate.features import LabelledFeatures
from scfs.evaluate.knn.layers import FINAL, LayerFeatures
from scfs.evaluate.knn.neighbours import HEADLINE_K, knn_accuracy
from scfs.visualize.attention import SearchedImage, Searcher, search_own_image, usable_side
from scfs.visualize.components import component_colours
from scfs.visualize.features import Sample, sample_features
from scfs.visualize.neighbours import choose_queries
from scfs.visualize.queries import Box, random_boxes
from scfs.visualize.report.run import ReportedRun

# B images, H W map height and width

NUM_TRAIN, NUM_VAL = 1024, 512  # images at most, so that a report takes seconds
NUM_SHOWN, NUM_QUERIES, NUM_TRIED = 6, 2, 12  # photos; queries of each, and boxes they are chosen from


class Network(NamedTuple):
    """A network to look at, with the settings of the run that it belongs to."""

    name: str
    backbone: Backbone
    size: int  # of centre crops
    config: Config


class Seen(NamedTuple):
    """What one network makes of the photos."""

    name: str
    features: Tensor  # (images, C)
    layer_scores: dict[str, Accuracy]  # k-NN by layer; empty without labels
    searched: list[SearchedImage]
    colours: dict[str, NDArray[np.float32]]  # (B, H, W, 3) by search layer


@dataclass(frozen=True)
class Photos:
    """Photos that can be read, evenly spaced over a source."""

    source: Source
    indices: Sequence[int]
    labels: Tensor
    unreadable: Sequence[str]

    @property
    def shown(self) -> list[int]:
        """Rows of varied photos: evenly spaced, of different classes where possible."""
        return choose_queries(self.labels, NUM_SHOWN)

    def image(self, row: int) -> Image.Image:
        return self.source.image(self.indices[row])

    def caption(self, row: int) -> str:
        """The class of a photo, or the end of its name."""
        if self.source.classes:
            return self.source.classes[int(self.labels[row])]
        return self.source.name(self.indices[row]).rsplit("/", 1)[-1]


class Evidence(NamedTuple):
    """Photos, and what each network makes of them: those of the runs in order, then one before training."""

    photos: Photos
    trained: list[Seen]
    before: Seen


def gather(
    runs: Sequence[ReportedRun], configs: Sequence[Config], source: Source, device: torch.device, console: Console
) -> Evidence:
    """Everything that needs the networks, computed on the photos of a source, the same for all of them."""
    names = ["after training"] if len(runs) == 1 else [run.name for run in runs]
    networks = []
    for run, name, config in zip(runs, names, configs, strict=True):
        loaded = load_backbone(str(run.folder))
        networks.append(Network(name, loaded.backbone.to(device), loaded.evaluated_size("auto"), config))
    networks.append(_before_training(networks[0]))
    workers = num_workers(configs[0].data.workers, device)
    samples = _features(networks, source, NUM_TRAIN, workers, console)
    first = samples[0]
    photos = Photos(source, first.indices.tolist(), first.labels, first.unreadable)
    scores = (
        _layer_scores(networks, samples, source, configs[0], workers, console)
        if source.classes
        else [{} for _ in networks]
    )
    images = [photos.image(row) for row in photos.shown]
    seen = [
        _look(network, sample, score, images) for network, sample, score in zip(networks, samples, scores, strict=True)
    ]
    return Evidence(photos, seen[:-1], seen[-1])


def _before_training(trained: Network) -> Network:
    """The same architecture as the run started with: its initial weights or, of its seed, random ones."""
    config, backbone = trained.config, trained.backbone
    device = next(backbone.parameters()).device
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        start, name = Backbone(backbone.name, backbone.layers), "random weights"
    if config.backbone.init:
        try:
            load_weights(start, config.backbone.init)
            name = "initial weights"
        except UserError:  # they have moved; random weights are a comparison too
            pass
    return Network(name, start.to(device), trained.size, config)


class _Together(nn.Module):
    """Features of all layers of several networks in one pass over the images: reading those takes most of the time."""

    def __init__(self, backbones: Sequence[Backbone]):
        super().__init__()
        self.networks = nn.ModuleList(LayerFeatures(backbone, all_layers=True) for backbone in backbones)

    @property
    def widths(self) -> list[int]:
        return [sum(network.widths.values()) for network in self.networks if isinstance(network, LayerFeatures)]

    def forward(self, images: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        return torch.cat([network(images)[0] for network in self.networks], dim=1), ()


def _features(networks: Sequence[Network], source: Source, limit: int, workers: int, console: Console) -> list[Sample]:
    """Features of all layers, one after another, of each network; networks with the same size of crops share a pass."""
    found: dict[int, Sample] = {}
    order = sorted(range(len(networks)), key=lambda i: networks[i].size)
    with Progress(console=console, transient=True) as progress:
        for size, group in itertools.groupby(order, key=lambda i: networks[i].size):
            members = [*group]
            together = _Together([networks[i].backbone for i in members])
            advance = partial(progress.advance, progress.add_task("features", total=min(limit, len(source))))
            sample = sample_features(together, source, size=size, limit=limit, workers=workers, on_batch=advance)
            parts = sample.features.split(together.widths, dim=1)
            found |= {i: sample._replace(features=part) for i, part in zip(members, parts, strict=True)}
    return [found[i] for i in range(len(networks))]


def _layers(network: Network, sample: Sample) -> dict[str, LabelledFeatures]:
    split = LayerFeatures(network.backbone, all_layers=True).split
    return split(LabelledFeatures(sample.features, sample.labels))


def _layer_scores(
    networks: Sequence[Network],
    samples: Sequence[Sample],
    source: Source,
    config: Config,
    workers: int,
    console: Console,
) -> list[dict[str, Accuracy]]:
    """k-NN by layer of each network, on a sample of the train and val images; empty if these cannot be scored.

    samples: of the source. They are the neighbours, unless the val images are some of the source's.
    """
    try:
        train, val = open_labelled(config.data.source, classes=config.data.classes, max_pixels=config.data.max_pixels)
    except UserError:  # usable for pictures, not for scoring: a single class, say
        return [{} for _ in networks]
    if len(train) < len(source):
        samples = _features(networks, train, NUM_TRAIN, workers, console)
    scored, num_classes = _features(networks, val, NUM_VAL, workers, console), len(val.classes)
    found = []
    for network, sample, held_out in zip(networks, samples, scored, strict=True):
        pairs = zip(_layers(network, sample).items(), _layers(network, held_out).values(), strict=True)
        found.append(
            {layer: knn_accuracy(known, asked, num_classes=num_classes)[HEADLINE_K] for (layer, known), asked in pairs}
        )
    return found


def _look(network: Network, sample: Sample, scores: dict[str, Accuracy], images: Sequence[Image.Image]) -> Seen:
    """Images are enlarged to 1.5 times the training size if the network accepts that, for a finer deepest map."""
    config, size = network.config, network.config.views.global_size
    try:
        side = usable_side(network.backbone, int(1.5 * size))
    except UserError:
        side = size
    query_side = config.views.local_size if config.num_local_views else size
    searcher = Searcher(network.backbone, side=side, query_side=query_side)
    searched = [search_own_image(searcher, image, _query_boxes(image)) for image in images]
    keys = searcher.keys(images)
    colours = {layer: component_colours([maps])[0] for layer, maps in keys.items()}
    return Seen(network.name, _layers(network, sample)[FINAL].features, scores, searched, colours)


def _query_boxes(image: Image.Image) -> list[Box]:
    """The most varied of some random boxes, so that queries show more than a wall or the sky; the same every time."""
    boxes = random_boxes(image.size, NUM_TRIED)
    varied = sorted(boxes, key=lambda box: -np.asarray(image.crop(box).convert("L"), np.float32).std())
    chosen = varied[:1]
    for box in varied[1:]:
        if len(chosen) < NUM_QUERIES and not any(_overlap(box, other) for other in chosen):
            chosen.append(box)
    return (chosen + varied)[:NUM_QUERIES]


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
