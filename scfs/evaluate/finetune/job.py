import time
from dataclasses import replace
from pathlib import Path

import torch
from rich.console import Console

from scfs import distributed
from scfs.backbones import Backbone
from scfs.data.lists import read_names
from scfs.data.selection import class_balanced, labels_of, named_in
from scfs.data.sources import Source
from scfs.evaluate.confusion import confusion_details
from scfs.evaluate.finetune.folder import read_grid, save_classifier
from scfs.evaluate.finetune.settings import Finetune
from scfs.evaluate.finetune.tuning import Tuning
from scfs.evaluate.own_data import with_data
from scfs.evaluate.tables import metrics_table
from scfs.evaluate.target import open_eval_target
from scfs.evaluate.training_folder import open_folder
from scfs.runs.files import digest_of
from scfs.runs.metric import Metric
from scfs.runs.results import record, results_folder
from scfs.training.cpu import cpu_setup


def finetune(target: str, settings: Finetune, console: Console) -> list[Metric]:
    """Score a backbone by fine-tuning it with labels, and save the network: the `scfs finetune` command.

    Rate and weight decay are chosen on images held out of training, never on those that are scored.
    """
    start, device = time.perf_counter(), distributed.choose_device(settings.device)
    with distributed.process_group(device), cpu_setup(device):
        recorded_in = results_folder(target, console) if settings.start == "weights" else None
        settings = with_data(target, settings, console)
        from_scratch = settings.start == "scratch"
        eval_target = open_eval_target(target, settings, device, Console(quiet=True) if from_scratch else console)
        if from_scratch:
            torch.manual_seed(settings.seed)
            eval_target = replace(
                eval_target, backbone=Backbone(eval_target.backbone.name, eval_target.backbone.layers)
            )
        source = _labelled(eval_target.train, settings)
        tuning = Tuning(eval_target, source, settings, console)
        work = eval_target.resolved(settings) | {"labelled_images": len(source), "listed": _listed(source, settings)}
        folder = Path(distributed.on_rank_zero(lambda: str(open_folder("finetune", target, settings.out, work))))
        about = f"{_title(settings)} of {eval_target}, {len(source)} of them with labels"
        console.print(f"{about}\nfolder   {folder}")
        if absent := len(eval_target.classes) - len({*labels_of(source).tolist()}):
            note = f"{absent} of {len(eval_target.classes)} classes have no labelled image: they will not be learned."
            console.print(note, style="yellow")
        cell, files = tuning.choose(folder), tuning.files(folder, "state.pt")
        classifier, scored = tuning.train_and_score(cell, source, eval_target.val, files=files)
        first = "mean per class" if tuning.metric == "per_class" else "top-1"
        metrics = scored.accuracy.metrics(first=first, num_classes=len(eval_target.classes))

        def save() -> None:
            console.print(metrics_table({str(cell): metrics}))
            details = {"held out": read_grid(folder), "rate": cell.rate, "weight_decay": cell.weight_decay}
            details |= confusion_details(scored.predictions, scored.labels, eval_target.classes)
            result = eval_target.result(
                "finetune", metrics, work, start=start, variant=_labels_used(settings), details=details
            )
            record(recorded_in or folder, result, console)
            path = save_classifier(folder, classifier, eval_target.classes, eval_target.size)
            console.print(f"network  {path}")

        distributed.on_rank_zero(save)
        files.remove_state()
    return metrics


def _labelled(train: Source, settings: Finetune) -> Source:
    """The images whose labels may be used."""
    if settings.images:
        return named_in(train, read_names(Path(settings.images).expanduser()), origin=settings.images)
    return train if settings.fraction == 1 else class_balanced(train, settings.fraction, settings.seed)


def _listed(source: Source, settings: Finetune) -> str:
    """A short hash of the images in a list: its content may change while its name does not."""
    return digest_of([source.name(i) for i in range(len(source))]) if settings.images else ""


def _labels_used(settings: Finetune) -> str:
    if settings.images:
        return Path(settings.images).name
    return f"{100 * settings.fraction:g} % of the labels"


def _title(settings: Finetune) -> str:
    return "Training from scratch" if settings.start == "scratch" else "Fine-tuning"
