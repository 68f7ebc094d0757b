import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from scfs import distributed
from scfs.data.loader import CropDataset, StepSampler, crop_batches
from scfs.data.selection import hold_out, split_by
from scfs.data.unreadable import show_replaced
from scfs.data.views import normalize
from scfs.evaluate.accuracy import Accuracy
from scfs.evaluate.features import Extracted
from scfs.evaluate.linear.features import ProbeFeatures
from scfs.evaluate.linear.probe_file import Probe, save_probe
from scfs.evaluate.linear.probes import Batch, ProbeLearner, Probes
from scfs.evaluate.linear.settings import Linear
from scfs.evaluate.target import EvalTarget, open_eval_target
from scfs.runs.json_files import digest_of
from scfs.runs.results import record, results_folder
from scfs.training.loop import FREE, TrainingPlan, fit, forget

QUICK = "Quick variant: features of centre crops, computed once; the paper's protocol crops anew in every epoch."


def linear(target: str, settings: Linear, console: Console) -> Accuracy:
    """Score a backbone by linear classifiers on its frozen features: the `scfs linear` command.

    Top-1 and top-5 after the last epoch, of the learning rate that was best on images held out of training.
    """
    start, device = time.perf_counter(), distributed.choose_device(settings.device)
    with distributed.process_group(device):
        folder = results_folder(target, console)
        eval_target = open_eval_target(target, settings, device, console)
        if settings.cached:
            console.print(QUICK, highlight=False, soft_wrap=True)
        held_out = hold_out(eval_target.train, settings.held_out, settings.seed)
        network = ProbeFeatures(eval_target.backbone, settings.blocks).eval()
        course = _course(eval_target, settings, folder)
        # Frozen, so the features of what is scored at the end can be had now.
        _, judges = split_by(eval_target.train, held_out)
        sources = (eval_target.train if settings.cached else judges, eval_target.val)
        seen, val = eval_target.extract(network, sources, settings, console)
        probes = _train(eval_target, network, torch.from_numpy(held_out), seen, course, settings, console).cpu()
        rows = torch.from_numpy(held_out)[seen.indices] if settings.cached else slice(None)  # those that could be read
        chosen = probes.best_rate(seen.labelled.features[rows], seen.labelled.labels[rows])
        accuracies = probes.accuracies(*val.labelled)
        console.print(f"Linear probe on {settings.data} of {eval_target}", highlight=False, soft_wrap=True)
        console.print(_table(settings.rates, accuracies, chosen))
        if distributed.is_rank_zero() and folder is not None:
            protocol, seconds = eval_target.protocol(settings), time.perf_counter() - start
            figures = {"cached" if settings.cached else "linear": accuracies[chosen].as_dict()}
            others = {f"rate {rate:g}": score.as_dict() for rate, score in zip(settings.rates, accuracies, strict=True)}
            record(folder, "linear", figures, protocol, others=others, seconds=seconds, device=device, console=console)
            weight, bias = probes.reported(chosen)
            about = (eval_target.size, settings.blocks, protocol["weights"])
            path = save_probe(folder, Probe(weight, bias, list(eval_target.classes), *about))
            console.print(f"probe    {path}", highlight=False, soft_wrap=True)
        forget(course.state)
    return accuracies[chosen]


def _train(
    eval_target: EvalTarget,
    network: ProbeFeatures,
    held_out: Tensor,
    seen: Extracted,
    course: TrainingPlan,
    settings: Linear,
    console: Console,
) -> Probes:
    """Probes at every rate, trained on cached features or on crops that are made anew."""
    torch.manual_seed(settings.seed)
    dim, batch_size = seen.labelled.features.shape[1], _batch_size(eval_target, settings)
    probes = Probes(dim, len(eval_target.classes), settings.rates).to(eval_target.device)
    learner = ProbeLearner(probes, batch_size=batch_size, total_steps=course.total_steps, alone=settings.cached)
    batches = (
        partial(_cached_batches, seen, held_out, batch_size, settings)
        if settings.cached
        else partial(_live_batches, eval_target, network, held_out, batch_size, settings, console)
    )
    fit(learner, batches, course, console=console)
    return probes


def _batch_size(eval_target: EvalTarget, settings: Linear) -> int:
    """As set, or all there are; of crops, all that processes can share evenly."""
    if settings.cached:
        return min(settings.batch_size, len(eval_target.train))
    return distributed.usable_batch_size(settings.batch_size, len(eval_target.train))


def _course(eval_target: EvalTarget, settings: Linear, folder: Path | None) -> TrainingPlan:
    """Its state is named by its settings and weights: another probe of the same run has a state of its own."""
    batch_size, known = _batch_size(eval_target, settings), eval_target.protocol(settings)
    steps_per_epoch = len(eval_target.train) // batch_size
    work = {name: value for name, value in known.items() if name not in FREE}
    name = f"linear_state_{digest_of(work)}.pt"
    state = None if folder is None else folder / name
    return TrainingPlan(steps_per_epoch, settings.epochs * steps_per_epoch, state, known)


def _cached_batches(
    seen: Extracted, held_out: Tensor, batch_size: int, settings: Linear, first_step: int
) -> Iterator[Batch]:
    """All images of each batch, from memory; one that could not be read is passed over."""
    row_of = {index: row for row, index in enumerate(seen.indices)}
    sampler = StepSampler(len(held_out), batch_size, settings.epochs, seed=settings.seed, start_step=first_step)
    for keys in sampler:
        indices = [index for _, index in keys if index in row_of]
        rows = torch.tensor([row_of[index] for index in indices])
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
    """The share of this process in each batch, cropped and passed through the backbone anew."""
    loaded = crop_batches(
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


def _table(rates: tuple[float, ...], accuracies: list[Accuracy], chosen: int) -> Table:
    table = Table("rate", "top-1 %", "95 % interval", "top-5 %", "")
    for i, (rate, accuracy) in enumerate(zip(rates, accuracies, strict=True)):
        table.add_row(f"{rate:g}", *accuracy.shown(), "chosen on held-out train images" if i == chosen else "")
    return table
