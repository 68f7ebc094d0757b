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
from scfs.engine.fit import forget
from scfs.engine.jsonfile import short_name
from scfs.engine.memory import keep_freed_memory
from scfs.evaluate.results import record, results_folder
from scfs.evaluate.scores import Accuracy
from scfs.evaluate.settings import Finetune
from scfs.evaluate.subject import open_subject
from scfs.evaluate.tuned_folder import open_folder, read_grid, save_classifier
from scfs.evaluate.tuning import Cell, Tuning


def finetune(target: str, settings: Finetune, console: Console) -> Accuracy:
    """Score a backbone by training all of it with labels, and keep the network: the `scfs finetune` command.

    Rate and weight decay are chosen on images held out of training, never on those that are scored.
    """
    start, device = time.perf_counter(), distributed.choose_device(settings.device)
    with distributed.process_group(device):
        torch.set_num_threads(num_cores())
        if device.type == "cpu":
            keep_freed_memory()
        kept_in = results_folder(target, console) if settings.start == "weights" else None
        subject = open_subject(target, settings, device, console)
        if settings.start == "scratch":
            torch.manual_seed(settings.seed)
            subject = replace(subject, backbone=Backbone(subject.backbone.name, subject.backbone.layers))
        source = _labelled(subject.train, settings)
        tuning = Tuning(subject, source, settings, console)
        work = subject.protocol(settings) | {"labelled_images": len(source), "listed": _listed(source, settings)}
        folder = Path(distributed.first_does(lambda: str(open_folder(target, settings.out, work))))
        about = f"{_title(settings)} of {subject}, {len(source)} of them with labels"
        console.print(f"{about}\nfolder   {folder}", highlight=False, soft_wrap=True)
        cell, state = tuning.choose(folder), folder / "state.pt"
        classifier, accuracy = tuning.work(cell, source, subject.val, state=state)
        if distributed.is_first():
            _print(console, tuning.metric, cell, accuracy)
            suffix = ", mean per class" if tuning.metric == "per_class" else ""
            figures = {f"{_labels_used(settings)}{suffix}": accuracy.as_dict()}
            others = {"held out": read_grid(folder), "rate": cell.rate, "weight_decay": cell.weight_decay}
            seconds = time.perf_counter() - start
            where = kept_in or folder
            record(where, "finetune", figures, work, others=others, seconds=seconds, device=device, console=console)
            path = save_classifier(folder, classifier, subject.classes, subject.size)
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
    return short_name([source.name(i) for i in range(len(source))]) if settings.images else ""


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
