"""Is the embedded data set fit for its purpose? Hard for an untrained network, easy for a trained one, cheap to paint.

    python benchmarks/scenes.py [--epochs 20] [--threads 2]

prints milliseconds per scene, k-NN top-1 with untrained networks, and top-1 of a small supervised network.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import timm
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchvision.transforms import v2

from scfs.data.scenes import CLASSES, render_scene

SMALL = {"layers": (1, 1, 1, 1), "channels": (32, 64, 128, 256)}
SIZES = {64: 73, 112: 128}  # evaluation size: size it is cut from
WEIGHT_SEEDS = 3
BATCH = 50


def backbone(seed: int, **settings) -> nn.Module:
    torch.manual_seed(seed)
    return timm.create_model("resnet18", num_classes=0, zero_init_last=False, **settings)


def paint(split: str, count: int) -> tuple[Tensor, Tensor]:
    scenes = [render_scene(0, split, index) for index in range(count)]
    images = torch.from_numpy(np.stack([scene.image for scene in scenes]))
    return images.permute(0, 3, 1, 2).contiguous(), torch.tensor([scene.label for scene in scenes])


def normalize(images: Tensor) -> Tensor:
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    return (images.float() / 255 - mean[:, None, None]) / std[:, None, None]


@torch.no_grad()
def outputs(model: nn.Module, images: Tensor, size: int) -> Tensor:
    """What the model says of the centers of all images, in evaluation mode."""
    model.eval()
    cut = v2.Compose([v2.Resize(SIZES[size], v2.InterpolationMode.BICUBIC), v2.CenterCrop(size)])
    return torch.cat([model(normalize(cut(batch))) for batch in images.split(BATCH)])


def knn(train: Tensor, train_labels: Tensor, val: Tensor, val_labels: Tensor) -> float:
    """Top-1 in percent with 20 neighbours, weighted by exp(cosine / 0.07)."""
    cosine, nearest = (F.normalize(val, dim=1) @ F.normalize(train, dim=1).T).topk(20)
    votes = torch.zeros(len(val), len(CLASSES)).scatter_add_(1, train_labels[nearest], (cosine / 0.07).exp())
    return 100 * (votes.argmax(1) == val_labels).float().mean().item()


def supervised(train: tuple[Tensor, Tensor], val: tuple[Tensor, Tensor], epochs: int) -> float:
    """Val top-1 in percent of the small network after training with labels at 64 pixels."""
    model = nn.Sequential(backbone(0, **SMALL), nn.Linear(256, len(CLASSES)))
    steps = len(train[0]) // BATCH * epochs
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=2e-3, total_steps=steps, pct_start=0.1)
    augment = v2.Compose(
        [v2.RandomResizedCrop(64, scale=(0.3, 1.0)), v2.RandomHorizontalFlip(), v2.ColorJitter(0.4, 0.4, 0.2, 0.1)]
    )
    for _ in range(epochs):
        model.train()
        for indices in torch.randperm(len(train[0])).split(BATCH):
            views = torch.stack([augment(image) for image in train[0][indices]])
            loss = F.cross_entropy(model(normalize(views)), train[1][indices], label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return 100 * (outputs(model, val[0], 64).argmax(1) == val[1]).float().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)

    start = time.perf_counter()
    train, val = paint("train", 5_000), paint("val", 1_000)
    print(f"{'painting':<42}{(time.perf_counter() - start) / 6:8.2f} ms per scene", flush=True)
    for name, settings in (("small resnet18", SMALL), ("resnet18", {})):
        for size in SIZES:
            scores = []
            for seed in range(WEIGHT_SEEDS):
                model = backbone(seed, **settings)
                scores.append(knn(outputs(model, train[0], size), train[1], outputs(model, val[0], size), val[1]))
            row = f"k-NN, untrained {name}, {size} px"
            print(f"{row:<42}{np.mean(scores):8.1f} %  ({min(scores):.1f} to {max(scores):.1f})", flush=True)
    start = time.perf_counter()
    accuracy = supervised(train, val, arguments.epochs)
    minutes = (time.perf_counter() - start) / 60
    print(f"{'supervised small resnet18, 64 px':<42}{accuracy:8.1f} %  ({arguments.epochs} epochs, {minutes:.1f} min)")


if __name__ == "__main__":
    main()
