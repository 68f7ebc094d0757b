"""Is the embedded data set fit for its purpose? Hard for an untrained network, easy for a trained one, cheap to paint.

    python benchmarks/scenes.py [--epochs 20] [--threads 2]

prints milliseconds per scene, k-NN top-1 with untrained networks, and top-1 of a small supervised network.
"""

import argparse
import time

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn
from torchvision.transforms import v2

from scfs.backbones import Backbone
from scfs.data.scenes import CLASSES, render_scene
from scfs.data.views import IMAGENET_MEAN, IMAGENET_STD, centre_view
from scfs.evaluate.features import LabelledFeatures
from scfs.evaluate.knn import knn_accuracy

SIZE = 64
WEIGHT_SEEDS = 3
BATCH = 50


class Images:
    """Painted scenes of a split, as pixels for training and as centre views for scoring."""

    def __init__(self, split: str, count: int):
        scenes = [render_scene(0, split, index) for index in range(count)]
        self.pixels = torch.from_numpy(np.stack([scene.image for scene in scenes])).permute(0, 3, 1, 2).contiguous()
        self.centres = torch.stack([centre_view(Image.fromarray(scene.image), SIZE) for scene in scenes])
        self.labels = torch.tensor([scene.label for scene in scenes])


def network(name: str, seed: int) -> Backbone:
    torch.manual_seed(seed)
    return Backbone(name, [])


@torch.no_grad()
def features(backbone: Backbone, images: Images) -> LabelledFeatures:
    backbone.eval()
    return LabelledFeatures(torch.cat([backbone(part)[0] for part in images.centres.split(BATCH)]), images.labels)


def untrained_knn(name: str, train: Images, val: Images) -> list[float]:
    """Top-1 in percent for several random weights."""
    scores = []
    for seed in range(WEIGHT_SEEDS):
        backbone = network(name, seed)
        score = knn_accuracy(features(backbone, train), features(backbone, val), num_classes=len(CLASSES))
        scores.append(100 * score[20].top1)
    return scores


def supervised(train: Images, val: Images, epochs: int) -> float:
    """Val top-1 in percent of the reduced network after training with labels."""
    backbone, classifier = network("resnet10_half", 0), nn.Linear(256, len(CLASSES))
    parameters = [*backbone.parameters(), *classifier.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=2e-3, weight_decay=0.05)
    steps = len(train.labels) // BATCH * epochs
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=2e-3, total_steps=steps, pct_start=0.1)
    augment = v2.Compose(
        [
            *(v2.RandomResizedCrop(SIZE, scale=(0.4, 1.0)), v2.RandomHorizontalFlip()),
            *(v2.ToDtype(torch.float32, scale=True), v2.Normalize(IMAGENET_MEAN, IMAGENET_STD)),
        ]
    )
    for _ in range(epochs):
        backbone.train()
        for indices in torch.randperm(len(train.labels)).split(BATCH):
            views: Tensor = torch.stack([augment(image) for image in train.pixels[indices]])
            loss = F.cross_entropy(classifier(backbone(views)[0]), train.labels[indices])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    found = features(backbone, val)
    with torch.no_grad():
        return 100 * (classifier(found.features).argmax(1) == found.labels).float().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)

    start = time.process_time()
    for index in range(300):
        render_scene(0, "train", index)
    print(f"{'painting':<34}{(time.process_time() - start) / 0.3:8.2f} ms of one core per scene", flush=True)
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
