import time

from rich.console import Console
from rich.table import Table

from scfs.distributed import choose_device, is_first, process_group
from scfs.evaluate.knn import HEADLINE_K, knn_accuracy
from scfs.evaluate.layers import FINAL
from scfs.evaluate.plots import save_bars
from scfs.evaluate.results import record, results_folder
from scfs.evaluate.scores import Accuracy
from scfs.evaluate.settings import Knn
from scfs.evaluate.subject import open_subject

Scores = dict[str, dict[int, Accuracy]]  # by layer, then k


def knn(target: str, settings: Knn, console: Console) -> Scores:
    """Score a backbone by its nearest neighbours and print the table: the `scfs knn` command."""
    start, device = time.perf_counter(), choose_device(settings.device)
    with process_group(device):
        folder = results_folder(target, console)
        subject = open_subject(target, settings, device, console)
        network, parts = subject.features(settings, console, all_layers=settings.layers == "all")
    train, val = (network.split(part.labelled) for part in parts)
    scores = {
        layer: knn_accuracy(
            train[layer],
            val[layer],
            num_classes=len(subject.classes),
            ks=settings.k,
            temperature=settings.temperature,
        )
        for layer in train
    }
    about = f"k-NN on {settings.data} of {subject}, temperature {settings.temperature:g}"
    console.print(about, highlight=False, soft_wrap=True)
    console.print(_table(scores))
    if is_first():
        protocol, seconds = subject.protocol(settings), time.perf_counter() - start
        record(folder, "knn", figures_of(scores), protocol, seconds=seconds, device=device, console=console)
        if settings.layers == "all" and folder is not None:
            k = HEADLINE_K if HEADLINE_K in settings.k else settings.k[0]
            plot = folder / "knn_layers.png"
            save_bars(plot, {layer: by_k[k] for layer, by_k in scores.items()}, ylabel=f"k-NN top-1 %, k = {k}")
            console.print(f"plot     {plot}", highlight=False, soft_wrap=True)
    return scores


def figures_of(scores: Scores) -> dict[str, dict[str, float | list[float]]]:
    """By name, such as "k=20" or, of a layer that is not the last, "layer3 k=20"."""
    return {
        f"k={k}" if layer == FINAL else f"{layer} k={k}": accuracy.as_dict()
        for layer, by_k in scores.items()
        for k, accuracy in by_k.items()
    }


def _table(scores: Scores) -> Table:
    table = Table(*(["layer"] if len(scores) > 1 else []), "k", "top-1 %", "95 % interval", "top-5 %")
    for layer, by_k in scores.items():
        for k, accuracy in by_k.items():
            table.add_row(*([layer] if len(scores) > 1 else []), str(k), *accuracy.shown())
    return table
