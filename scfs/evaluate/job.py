from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from scfs.backbones import load_backbone
from scfs.config import Knn
from scfs.data.loader import num_workers
from scfs.data.sources import open_labelled
from scfs.distributed import choose_device
from scfs.evaluate.features import extract
from scfs.evaluate.knn import Accuracy, knn_accuracy

DEFAULT_SIZE = 224


def knn(target: str, settings: Knn, console: Console) -> dict[int, Accuracy]:
    """Score a backbone by its nearest neighbours and print the table: the `scfs knn` command."""
    device = choose_device(settings.device)
    train, val = open_labelled(settings.data)
    loaded = load_backbone(target, network=settings.network, seed=settings.seed)
    backbone = loaded.backbone.to(device)
    size = (loaded.size or DEFAULT_SIZE) if settings.size == "auto" else settings.size
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("features", total=len(train) + len(val))
        parts = [
            extract(
                backbone,
                source,
                size=size,
                batch_size=settings.batch_size,
                workers=num_workers(settings.workers, device),
                device=device,
                on_batch=lambda images: progress.advance(task, images),
            )
            for source in (train, val)
        ]
    scores = knn_accuracy(*parts, num_classes=len(train.classes), ks=settings.k, temperature=settings.temperature)
    console.print(
        f"k-NN of {target} on {settings.data}: {len(train)} train and {len(val)} val images at {size} px, "
        f"temperature {settings.temperature:g}",
        highlight=False,
        soft_wrap=True,
    )
    table = Table("k", "top-1 %", "top-5 %")
    for k, accuracy in scores.items():
        table.add_row(str(k), f"{100 * accuracy.top1:.1f}", f"{100 * accuracy.top5:.1f}")
    console.print(table)
    return scores
