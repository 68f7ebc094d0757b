import time
from dataclasses import replace
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from scfs import distributed
from scfs.backbones import Backbone
from scfs.data.lists import read_names
from scfs.data.loader import num_cores
from scfs.data.selection import class_balanced, named_in
from scfs.data.sources import Source
from scfs.evaluate.accuracy import Accuracy
from scfs.evaluate.finetune.folder import open_folder, read_grid, save_classifier
from scfs.evaluate.finetune.settings import Finetune
from scfs.evaluate.finetune.tuning import Cell, Tuning
from scfs.evaluate.target import open_eval_target
from scfs.process import owns_process
from scfs.runs.json_files import digest_of
from scfs.runs.results import record, results_folder
from scfs.training.cpu import keep_freed_memory
from scfs.training.loop import forget


def finetune(target: str, settings: Finetune, console: Console) -> Accuracy:
    """Score a backbone by training all of it with labels, and keep the network: the `scfs finetune` command.

    Rate and weight decay are chosen on images held out of training, never on those that are scored.
    """
    start, device = time.perf_counter(), distributed.choose_device(settings.device)
    with distributed.process_group(device):
        if owns_process():
            torch.set_num_threads(num_cores())
        if device.type == "cpu" and owns_process():
            keep_freed_memory()
        kept_in = results_folder(target, console) if settings.start == "weights" else None
        eval_target = open_eval_target(target, settings, device, console)
        if settings.start == "scratch":
            torch.manual_seed(settings.seed)
            eval_target = replace(
                eval_target, backbone=Backbone(eval_target.backbone.name, eval_target.backbone.layers)
            )
        source = _labelled(eval_target.train, settings)
        tuning = Tuning(eval_target, source, settings, console)
        work = eval_target.protocol(settings) | {"labelled_images": len(source), "listed": _listed(source, settings)}
        folder = Path(distributed.on_rank_zero(lambda: str(open_folder(target, settings.out, work))))
        about = f"{_title(settings)} of {eval_target}, {len(source)} of them with labels"
        console.print(f"{about}\nfolder   {folder}", highlight=False, soft_wrap=True)
        cell, state = tuning.choose(folder), folder / "state.pt"
        classifier, accuracy = tuning.work(cell, source, eval_target.val, state=state)
        if distributed.is_rank_zero():
            _print(console, tuning.metric, cell, accuracy)
            suffix = ", mean per class" if tuning.metric == "per_class" else ""
            figures = {f"{_labels_used(settings)}{suffix}": accuracy.as_dict()}
            others = {"held out": read_grid(folder), "rate": cell.rate, "weight_decay": cell.weight_decay}
            seconds = time.perf_counter() - start
            where = kept_in or folder
            record(where, "finetune", figures, work, others=others, seconds=seconds, device=device, console=console)
            path = save_classifier(folder, classifier, eval_target.classes, eval_target.size)
            console.print(f"network  {path}", highlight=False, soft_wrap=True)
        forget(state)
    return accuracy


def _labelled(train: Source, settings: Finetune) -> Source:
    """The images whose labels may be used."""
    if settings.images:
        return named_in(train, read_names(Path(settings.images).expanduser()), origin=settings.images)
    return train if settings.fraction == 1 else class_balanced(train, settings.fraction, settings.seed)


def _listed(source: Source, settings: Finetune) -> str:
    """The images that a list names, in a few letters: the list may change while its name does not."""
    return digest_of([source.name(i) for i in range(len(source))]) if settings.images else ""


def _labels_used(settings: Finetune) -> str:
    if settings.images:
        return Path(settings.images).name
    return f"{100 * settings.fraction:g} % of the labels"


def _title(settings: Finetune) -> str:
    return "Training from scratch" if settings.start == "scratch" else "Fine-tuning"


def _print(console: Console, metric: str, cell: Cell, accuracy: Accuracy) -> None:
    table = Table(
        "rate", "weight decay", "top-1 %" if metric == "top1" else "mean per class %", "95 % interval", "top-5 %"
    )
    table.add_row(f"{cell.rate:g}", f"{cell.weight_decay:g}", *accuracy.shown())
    console.print(table)
