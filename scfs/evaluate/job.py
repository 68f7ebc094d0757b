from rich.console import Console
from rich.table import Table

from scfs.backbones import load_backbone
from scfs.config import Knn
from scfs.data.sources import open_labelled
from scfs.distributed import choose_device, process_group
from scfs.evaluate.features import extract_shown
from scfs.evaluate.knn import Accuracy, knn_accuracy

DEFAULT_SIZE = 224


def knn(target: str, settings: Knn, console: Console) -> dict[int, Accuracy]:
    """Score a backbone by its nearest neighbours and print the table: the `scfs knn` command."""
    device = choose_device(settings.device)
    with process_group(device):
        train, val = open_labelled(settings.data, classes=settings.classes)
        loaded = load_backbone(target, name=settings.backbone or None, network=settings.network, seed=settings.seed)
        backbone = loaded.backbone.to(device)
        size = (loaded.size or DEFAULT_SIZE) if settings.size == "auto" else settings.size
        backbone.check_sizes(size)
        parts = extract_shown(
            backbone,
            (train, val),
            size=size,
            batch_size=settings.batch_size,
            workers=settings.workers,
            device=device,
            console=console,
        )
    labelled = (part.labelled for part in parts)
    scores = knn_accuracy(*labelled, num_classes=len(train.classes), ks=settings.k, temperature=settings.temperature)
    if loaded.taken is not None:
        console.print(str(loaded.taken), highlight=False, soft_wrap=True)
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
