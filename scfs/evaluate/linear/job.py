import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.console import Console
from torch import Tensor

from scfs import distributed
from scfs.data.loader import CropDataset, StepSampler, training_batches
from scfs.data.selection import hold_out, split_by
from scfs.data.unreadable import show_replaced
from scfs.data.views import normalize
from scfs.evaluate.confusion import confusion_details
from scfs.evaluate.features import Extracted, LabelledFeatures
from scfs.evaluate.linear.features import ProbeFeatures
from scfs.evaluate.linear.probe_file import Probe, save_probe
from scfs.evaluate.linear.probes import Batch, ProbeLearner, Probes
from scfs.evaluate.linear.settings import Linear
from scfs.evaluate.own_data import with_data
from scfs.evaluate.sharding import usable_batch_size
from scfs.evaluate.tables import metrics_table
from scfs.evaluate.target import EvalTarget, open_eval_target
from scfs.runs.metric import Metric, as_json
from scfs.runs.results import Result, record, results_folder
from scfs.training.cpu import cpu_setup
from scfs.training.loop import TrainingPlan
from scfs.training.resumable import TrainingFiles, fit

QUICK = "Quick variant: features of centre crops, computed once; the paper's protocol makes new crops in every epoch."


class Scored(NamedTuple):
    """Metrics on val images of the probes that saw all images, by learning rate."""

    by_rate: dict[str, list[Metric]]
    chosen: int  # the rate, by its index
    confusion: dict[str, Any]  # of the probe that was chosen

    @property
    def best(self) -> str:
        """The name of the chosen rate."""
        return list(self.by_rate)[self.chosen]

    @property
    def metrics(self) -> list[Metric]:
        """Those of the chosen rate."""
        return self.by_rate[self.best]

    @property
    def details(self) -> dict[str, Any]:
        """Everything else, for `results.json`."""
        return {name: as_json(metrics) for name, metrics in self.by_rate.items()} | self.confusion


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
            console.print(QUICK)
        held_out = torch.from_numpy(hold_out(eval_target.train, settings.held_out, settings.seed))
        network = ProbeFeatures(eval_target.backbone, settings.blocks).eval()
        files = eval_target.training_files("linear", settings, folder)
        # The backbone is frozen, so the features to score at the end can be computed now.
        _, held_out_images = split_by(eval_target.train, held_out.numpy())
        sources = (eval_target.train if settings.cached else held_out_images, eval_target.val)
        seen, val = eval_target.extract(network, sources, settings, console)
        probes = _train(eval_target, network, held_out, seen, files, settings, console)
        scored = _score(probes, _held_out(seen, held_out, settings), val.labelled, eval_target.classes)
        console.print(f"Linear probe on {settings.data} of {eval_target}")
        console.print(metrics_table(scored.by_rate))
        if len(probes.rates) > 1:
            console.print(f"{scored.best}: chosen on held-out train images")
        if folder is not None:
            resolved, variant = eval_target.resolved(settings), "cached" if settings.cached else ""
            weight, bias = probes.reported(scored.chosen)
            probe = Probe(
                weight, bias, list(eval_target.classes), eval_target.size, settings.blocks, resolved["weights"]
            )
            result = eval_target.result(
                "linear", scored.metrics, resolved, start=start, variant=variant, details=scored.details
            )
            distributed.on_rank_zero(lambda: _save(folder, result, probe, console))
        if files is not None:
            files.remove_state()
    return scored.metrics


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


def _held_out(seen: Extracted, held_out: Tensor, settings: Linear) -> LabelledFeatures:
    """The held-out images of this process, of those that can be read."""
    if not settings.cached:
        return seen.labelled
    rows = held_out[seen.indices.cpu()]
    return LabelledFeatures(*(column[rows] for column in seen.labelled))


def _score(probes: Probes, held_out: LabelledFeatures, val: LabelledFeatures, classes: Sequence[str]) -> Scored:
    """Choose the rate on held-out images, and score all on val images; of both, each process gives its shard."""
    chosen = probes.best_rate(*held_out)
    metrics = [each.metrics(num_classes=len(classes)) for each in probes.accuracies(*val)]
    predictions = distributed.gather_rows(probes.predicted(chosen, val.features)).cpu()
    labels = distributed.gather_rows(val.labels).cpu()
    by_rate = {f"rate {rate:g}": each for rate, each in zip(probes.rates, metrics, strict=True)}
    return Scored(by_rate, chosen, confusion_details(predictions, labels, classes))


def _save(folder: Path, result: Result, probe: Probe, console: Console) -> None:
    """Record the result and save the probe that was chosen."""
    record(folder, result, console)
    console.print(f"probe    {save_probe(folder, probe)}")


def _batch_size(eval_target: EvalTarget, settings: Linear) -> int:
    """As set or, with fewer images, all; for crops, as many as split evenly over processes."""
    if settings.cached:
        return min(settings.batch_size, len(eval_target.train))
    return usable_batch_size(settings.batch_size, len(eval_target.train))


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
