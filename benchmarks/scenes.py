"""Is the embedded data set suitable? Hard for an untrained network, easy for a trained one, cheap to render.

    python benchmarks/scenes.py [--epochs 40] [--threads 2]

prints milliseconds per scene, k-NN top-1 with untrained networks, and top-1 of a small supervised network.
"""

import argparse
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchvision.transforms import v2

from scfs.backbones import Backbone
from scfs.data.scenes import CLASSES, render_scene
from scfs.data.views import centre_view, normalize
from scfs.evaluate.features import LabelledFeatures
from scfs.evaluate.knn.neighbours import knn_accuracy

SIZE = 64
WEIGHT_SEEDS = 3
BATCH = 50


class Images:
    """Rendered scenes of a split."""

    def __init__(self, split: str, count: int):
        scenes = [render_scene(0, split, index) for index in range(count)]
        self.pixels = torch.from_numpy(np.stack([scene.image for scene in scenes])).permute(0, 3, 1, 2).contiguous()
        self.labels = torch.tensor([scene.label for scene in scenes])


def network(name: str, seed: int) -> Backbone:
    torch.manual_seed(seed)
    return Backbone(name, [])


def centres(images: Images) -> Tensor:
    """Centre crops, as in the k-NN protocol."""
    return torch.stack([centre_view(v2.functional.to_pil_image(image), SIZE) for image in images.pixels])


@torch.no_grad()
def features(backbone: Backbone, views: Tensor) -> Tensor:
    backbone.eval()
    return torch.cat([backbone(normalize(part))[0] for part in views.split(BATCH)])


def untrained_knn(name: str, train: Images, val: Images) -> list[float]:
    """Top-1 in percent, for several random initialisations."""
    scores, views = [], [centres(train), centres(val)]
    for seed in range(WEIGHT_SEEDS):
        backbone = network(name, seed)
        known, asked = (
            LabelledFeatures(features(backbone, part), images.labels)
            for part, images in zip(views, (train, val), strict=True)
        )
        score = knn_accuracy(known, asked, num_classes=len(CLASSES))
        scores.append(100 * score[20].top1)
    return scores


def supervised(train: Images, val: Images, epochs: int) -> float:
    """Val top-1 of the small network in percent, after training with labels."""
    backbone, classifier = network("resnet10_half", 0), nn.Linear(256, len(CLASSES))
    parameters = [*backbone.parameters(), *classifier.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=2e-3, weight_decay=0.05)
    steps = len(train.labels) // BATCH * epochs
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=2e-3, total_steps=steps, pct_start=0.1)
    augment = v2.Compose(
        [
            *(v2.RandomResizedCrop(SIZE, scale=(0.5, 1.0)), v2.RandomHorizontalFlip()),
            v2.ColorJitter(0.4, 0.4),
        ]
    )
    for _ in range(epochs):
        backbone.train()
        for indices in torch.randperm(len(train.labels)).split(BATCH):
            views = normalize(torch.stack([augment(image) for image in train.pixels[indices]]))
            loss = F.cross_entropy(classifier(backbone(views)[0]), train.labels[indices])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    found = features(backbone, v2.functional.resize(val.pixels, [SIZE, SIZE]))
    with torch.no_grad():
        return 100 * (classifier(found).argmax(1) == val.labels).float().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)

    start = time.process_time()
    for index in range(300):
        render_scene(0, "train", index)
    print(f"{'rendering':<34}{(time.process_time() - start) / 0.3:8.2f} ms per scene on one core", flush=True)
    train, val = Images("train", 5_000), Images("val", 1_000)
    for name in ("resnet10_half", "resnet18"):
        scores = untrained_knn(name, train, val)
        row = f"k-NN, untrained {name}"
        print(f"{row:<34}{np.mean(scores):8.1f} %  ({min(scores):.1f} to {max(scores):.1f})", flush=True)
    start = time.perf_counter()
    accuracy = supervised(train, val, arguments.epochs)
    minutes = (time.perf_counter() - start) / 60
    print(f"{'supervised resnet10_half':<34}{accuracy:8.1f} %  ({arguments.epochs} epochs, {minutes:.1f} min)")


if __name__ == "__main__":
    main()
