import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from rich.console import Console
from torch import Tensor

from scfs import distributed
from scfs.data.loader import CropDataset, StepSampler, training_batches
from scfs.data.selection import hold_out, split_by
from scfs.data.unreadable import show_replaced
from scfs.data.views import normalize
from scfs.evaluate.confusion import confusion_details
from scfs.evaluate.features import Extracted
from scfs.evaluate.linear.features import ProbeFeatures
from scfs.evaluate.linear.probe_file import Probe, save_probe
from scfs.evaluate.linear.probes import Batch, ProbeLearner, Probes
from scfs.evaluate.linear.settings import Linear
from scfs.evaluate.own_data import with_data
from scfs.evaluate.tables import metrics_table
from scfs.evaluate.target import EvalTarget, open_eval_target
from scfs.runs.metric import Metric, as_json
from scfs.runs.results import record, results_folder
from scfs.training.cpu import cpu_setup
from scfs.training.loop import TrainingPlan
from scfs.training.resumable import TrainingFiles, fit

QUICK = "Quick variant: features of centre crops, computed once; the paper's protocol makes new crops in every epoch."


def linear(target: str, settings: Linear, console: Console) -> list[Metric]:
    """Score a backbone by linear classifiers on its frozen features: the `scfs linear` command.

    Top-1 and, of more than five classes, top-5 after the last epoch, of the learning rate that was best on images held
    out of training.
    """
    start, device = time.perf_counter(), distributed.choose_device(settings.device)
    with distributed.process_group(device), cpu_setup(device):
        folder, settings = results_folder(target, console), with_data(target, settings, console)
        eval_target = open_eval_target(target, settings, device, console)
        if settings.cached:
            console.print(QUICK, highlight=False, soft_wrap=True)
        held_out = hold_out(eval_target.train, settings.held_out, settings.seed)
        network = ProbeFeatures(eval_target.backbone, settings.blocks).eval()
        files = eval_target.training_files("linear", settings, folder)
        # The backbone is frozen, so the features to score at the end can be computed now.
        _, held_out_images = split_by(eval_target.train, held_out)
        sources = (eval_target.train if settings.cached else held_out_images, eval_target.val)
        seen, val = eval_target.extract(network, sources, settings, console)
        probes = _train(eval_target, network, torch.from_numpy(held_out), seen, files, settings, console)
        probes = probes.to(val.labelled.features.device)
        # Of the readable images of this process.
        rows = torch.from_numpy(held_out)[seen.indices.cpu()] if settings.cached else slice(None)
        chosen = probes.best_rate(seen.labelled.features[rows], seen.labelled.labels[rows])
        accuracies = probes.accuracies(*val.labelled)
        weight, bias = probes.reported(chosen)
        predictions = distributed.gather_rows(F.linear(val.labelled.features, weight, bias).argmax(dim=-1)).cpu()
        labels = distributed.gather_rows(val.labelled.labels).cpu()
        console.print(f"Linear probe on {settings.data} of {eval_target}", highlight=False, soft_wrap=True)
        by_rate = {
            f"rate {rate:g}": each.metrics(num_classes=len(eval_target.classes))
            for rate, each in zip(settings.rates, accuracies, strict=True)
        }
        best = list(by_rate)[chosen]
        console.print(metrics_table(by_rate))
        console.print(f"{best}: chosen on held-out train images", highlight=False)

        def save(folder: Path) -> None:
            resolved, variant = eval_target.resolved(settings), "cached" if settings.cached else ""
            details = {name: as_json(metrics) for name, metrics in by_rate.items()}
            details |= confusion_details(predictions, labels, eval_target.classes)
            result = eval_target.result(
                "linear", by_rate[best], resolved, start=start, variant=variant, details=details
            )
            record(folder, result, console)
            about = (eval_target.size, settings.blocks, resolved["weights"])
            path = save_probe(folder, Probe(weight.cpu(), bias.cpu(), list(eval_target.classes), *about))
            console.print(f"probe    {path}", highlight=False, soft_wrap=True)

        if folder is not None:
            distributed.on_rank_zero(lambda: save(folder))
        if files is not None:
            files.remove_state()
    return by_rate[best]


def _train(
    eval_target: EvalTarget,
    network: ProbeFeatures,
    held_out: Tensor,
    seen: Extracted,
    files: TrainingFiles | None,
    settings: Linear,
    console: Console,
) -> Probes:
    """Probes at every rate, trained on cached features or on new crops."""
    torch.manual_seed(settings.seed)
    dim, batch_size = seen.labelled.features.shape[1], _batch_size(eval_target, settings)
    probes = Probes(dim, len(eval_target.classes), settings.rates).to(eval_target.device)
    steps_per_epoch = len(eval_target.train) // batch_size
    plan = TrainingPlan(steps_per_epoch, settings.epochs * steps_per_epoch, batch_size)
    learner = ProbeLearner(probes, batch_size=batch_size, total_steps=plan.total_steps)
    batches = (
        partial(_cached_batches, seen, held_out, batch_size, settings)
        if settings.cached
        else partial(_live_batches, eval_target, network, held_out, batch_size, settings, console)
    )
    fit(learner, batches, plan, files=files, console=console)
    return probes


def _batch_size(eval_target: EvalTarget, settings: Linear) -> int:
    """As set or, with fewer images, all; for crops, as many as split evenly over processes."""
    if settings.cached:
        return min(settings.batch_size, len(eval_target.train))
    return distributed.usable_batch_size(settings.batch_size, len(eval_target.train))


def _cached_batches(
    seen: Extracted, held_out: Tensor, batch_size: int, settings: Linear, first_step: int
) -> Iterator[Batch]:
    """The images of each batch whose features this process has; unreadable ones are skipped."""
    sampler = StepSampler(len(held_out), batch_size, settings.epochs, seed=settings.seed, start_step=first_step)
    row_of = torch.full((len(held_out),), -1)
    row_of[seen.indices.cpu()] = torch.arange(len(seen.indices))
    for keys in sampler:
        indices = torch.tensor([index for _, index in keys])
        indices = indices[row_of[indices] >= 0]
        rows = row_of[indices].to(seen.indices.device)
        yield Batch(seen.labelled.features[rows], seen.labelled.labels[rows], held_out[indices])


@torch.no_grad()
def _live_batches(
    eval_target: EvalTarget,
    network: ProbeFeatures,
    held_out: Tensor,
    batch_size: int,
    settings: Linear,
    console: Console,
    first_step: int,
) -> Iterator[Batch]:
    """The process's shard of each batch, newly cropped and passed through the backbone."""
    loaded = training_batches(
        CropDataset(eval_target.train, eval_target.size, settings.seed),
        batch_size=batch_size,
        epochs=settings.epochs,
        start_step=first_step,
        workers=settings.workers,
        device=eval_target.device,
        on_unreadable=show_replaced(console),
    )
    for batch in loaded:
        features, _ = network(normalize(batch.views.to(eval_target.device, non_blocking=True)))
        yield Batch(features.float(), batch.labels, held_out[batch.indices])
