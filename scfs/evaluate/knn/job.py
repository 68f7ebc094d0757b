import time

import torch
from rich.console import Console
from rich.table import Table

from scfs.distributed import choose_device, is_rank_zero, process_group
from scfs.evaluate.accuracy import Accuracy
from scfs.evaluate.knn.layers import FINAL
from scfs.evaluate.knn.neighbours import HEADLINE_K, knn_accuracy
from scfs.evaluate.knn.settings import Knn
from scfs.evaluate.plots import save_bars
from scfs.evaluate.target import open_eval_target
from scfs.runs.results import record, results_folder
from scfs.training.cpu import cpu_setup

Scores = dict[str, dict[int, Accuracy]]  # by layer, then k


def knn(target: str, settings: Knn, console: Console) -> Scores:
    """Score a backbone by its nearest neighbours and print the table: the `scfs knn` command."""
    device = choose_device(settings.device)
    with cpu_setup(device):
        return _knn(target, settings, device, console)


def _knn(target: str, settings: Knn, device: torch.device, console: Console) -> Scores:
    start = time.perf_counter()
    with process_group(device):
        folder = results_folder(target, console)
        eval_target = open_eval_target(target, settings, device, console)
        network, parts = eval_target.features(settings, console, all_layers=settings.layers == "all")
    train, val = (network.split(part.labelled) for part in parts)
    scores = {
        layer: knn_accuracy(
            train[layer],
            val[layer],
            num_classes=len(eval_target.classes),
            ks=settings.k,
            temperature=settings.temperature,
        )
        for layer in train
    }
    about = f"k-NN on {settings.data} of {eval_target}, temperature {settings.temperature:g}"
    console.print(about, highlight=False, soft_wrap=True)
    console.print(_table(scores))
    if is_rank_zero():
        protocol, seconds = eval_target.protocol(settings), time.perf_counter() - start
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
