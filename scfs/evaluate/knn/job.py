import time
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import torch
from rich.console import Console

from scfs.distributed import choose_device, is_rank_zero, process_group, sum_counts
from scfs.evaluate.knn.layers import FINAL
from scfs.evaluate.knn.neighbours import HEADLINE_K, knn_accuracy
from scfs.evaluate.knn.settings import Knn
from scfs.evaluate.own_data import with_data
from scfs.evaluate.plots import save_bars
from scfs.evaluate.tables import metrics_table
from scfs.evaluate.target import open_eval_target
from scfs.runs.metric import Metric
from scfs.runs.results import record, results_folder
from scfs.training.cpu import cpu_setup


def knn(target: str, settings: Knn, console: Console) -> list[Metric]:
    """Score a backbone by its nearest neighbours and print the table: the `scfs knn` command.

    Metrics are named "k=20 top-1" or, for features of a search layer, "layer3 k=20 top-1".
    """
    device = choose_device(settings.device)
    with process_group(device), cpu_setup(device):
        return _knn(target, settings, device, console)


def _knn(target: str, settings: Knn, device: torch.device, console: Console) -> list[Metric]:
    start = time.perf_counter()
    folder, settings = results_folder(target, console), with_data(target, settings, console)
    eval_target = open_eval_target(target, settings, device, console)
    network, (train, val) = eval_target.features(settings, console, all_layers=settings.layers == "all")
    [num_images] = sum_counts(len(train.indices))
    ks = _usable_ks(settings.k, num_images, console)
    rows: dict[str, list[Metric]] = {}
    num_classes, asked = len(eval_target.classes), network.split(val.labelled)
    for layer, known in network.split(train.labelled).items():
        accuracies = knn_accuracy(
            known,
            asked[layer],
            num_classes=num_classes,
            ks=ks,
            temperature=settings.temperature,
            indices=train.indices,
        )
        prefix = "" if layer == FINAL else f"{layer} "
        for k, accuracy in accuracies.items():
            rows[f"{prefix}k={k}"] = accuracy.metrics(f"{prefix}k={k} ", num_classes=num_classes)
    about = f"k-NN on {settings.data} of {eval_target}, temperature {settings.temperature:g}"
    console.print(about)
    console.print(metrics_table(rows))
    metrics = list(chain.from_iterable(rows.values()))
    if is_rank_zero():
        record(folder, eval_target.result("knn", metrics, eval_target.resolved(settings), start=start), console)
        if settings.layers == "all" and folder is not None:
            _plot_layers(folder, [first for first, *_ in rows.values()], ks, console)
    return metrics


def _usable_ks(ks: Sequence[int], num_images: int, console: Console) -> Sequence[int]:
    """Those up to the number of train images; if there is none, the smallest, which then uses all images."""
    usable = [k for k in ks if k <= num_images] or [min(ks)]
    if left_out := [str(k) for k in ks if k not in usable]:
        note = f"k={', '.join(left_out)} left out: there are only {num_images} train images."
        console.print(note)
    if usable[0] > num_images:
        console.print(f"k={usable[0]} uses all {num_images} train images.")
    return usable


def _plot_layers(folder: Path, metrics: Sequence[Metric], ks: Sequence[int], console: Console) -> None:
    """A bar per layer, for the headline k or, without it, the first one."""
    ending = f"k={HEADLINE_K if HEADLINE_K in ks else ks[0]} top-1"
    chosen = {m.name.removesuffix(ending).strip() or FINAL: m for m in metrics if m.name.endswith(ending)}
    plot = folder / "knn_layers.png"
    save_bars(plot, chosen, label=f"k-NN {ending}")
    console.print(f"plot     {plot}")
