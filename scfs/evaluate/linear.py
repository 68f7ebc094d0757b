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
from scfs.data.views import normalised
from scfs.engine.fit import FREE, Course, fit, forget
from scfs.engine.jsonfile import short_name
from scfs.evaluate.features import Extracted, say_unreadable
from scfs.evaluate.probe_features import ProbeFeatures
from scfs.evaluate.probe_file import Probe, save_probe
from scfs.evaluate.probes import Batch, ProbeLearner, Probes
from scfs.evaluate.results import record, results_folder
from scfs.evaluate.scores import Accuracy
from scfs.evaluate.settings import Linear
from scfs.evaluate.subject import Subject, open_subject

QUICK = "Quick variant: features of centre crops, computed once; the paper's protocol crops anew in every epoch."


def linear(target: str, settings: Linear, console: Console) -> Accuracy:
    """Score a backbone by linear classifiers on its frozen features: the `scfs linear` command.

    Top-1 and top-5 after the last epoch, of the learning rate that was best on images held out of training.
    """
    start, device = time.perf_counter(), distributed.choose_device(settings.device)
    with distributed.process_group(device):
        folder = results_folder(target, console)
        subject = open_subject(target, settings, device, console)
        if settings.cached:
            console.print(QUICK, highlight=False, soft_wrap=True)
        held_out = hold_out(subject.train, settings.held_out, settings.seed)
        network = ProbeFeatures(subject.backbone, settings.blocks).eval()
        course = _course(subject, settings, folder)
        # Frozen, so the features of what is scored at the end can be had now.
        _, judges = split_by(subject.train, held_out)
        sources = (subject.train if settings.cached else judges, subject.val)
        seen, val = subject.extract(network, sources, settings, console)
        probes = _train(subject, network, torch.from_numpy(held_out), seen, course, settings, console).cpu()
        rows = torch.from_numpy(held_out)[seen.places] if settings.cached else slice(None)  # those that could be read
        chosen = probes.best_rate(seen.labelled.features[rows], seen.labelled.labels[rows])
        accuracies = probes.accuracies(*val.labelled)
        console.print(f"Linear probe on {settings.data} of {subject}", highlight=False, soft_wrap=True)
        console.print(_table(settings.rates, accuracies, chosen))
        if distributed.is_first() and folder is not None:
            protocol, seconds = subject.protocol(settings), time.perf_counter() - start
            figures = {"cached" if settings.cached else "linear": accuracies[chosen].as_dict()}
            others = {f"rate {rate:g}": score.as_dict() for rate, score in zip(settings.rates, accuracies, strict=True)}
            record(folder, "linear", figures, protocol, others=others, seconds=seconds, device=device, console=console)
            weight, bias = probes.reported(chosen)
            about = (subject.size, settings.blocks, protocol["weights"])
            path = save_probe(folder, Probe(weight, bias, list(subject.classes), *about))
            console.print(f"probe    {path}", highlight=False, soft_wrap=True)
        forget(course.state)
    return accuracies[chosen]


def _train(
    subject: Subject,
    network: ProbeFeatures,
    held_out: Tensor,
    seen: Extracted,
    course: Course,
    settings: Linear,
    console: Console,
) -> Probes:
    """Probes at every rate, trained on cached features or on crops that are made anew."""
    torch.manual_seed(settings.seed)
    dim, batch_size = seen.labelled.features.shape[1], _batch_size(subject, settings)
    probes = Probes(dim, len(subject.classes), settings.rates).to(subject.device)
    learner = ProbeLearner(probes, batch_size=batch_size, total_steps=course.total_steps, alone=settings.cached)
    batches = (
        partial(_cached_batches, seen, held_out, batch_size, settings)
        if settings.cached
        else partial(_live_batches, subject, network, held_out, batch_size, settings, console)
    )
    fit(learner, batches, course, console=console)
    return probes


def _batch_size(subject: Subject, settings: Linear) -> int:
    """As set, or all there are; of crops, all that processes can share evenly."""
    if settings.cached:
        return min(settings.batch_size, len(subject.train))
    return distributed.batch_of(settings.batch_size, len(subject.train))


def _course(subject: Subject, settings: Linear, folder: Path | None) -> Course:
    """Its state is named by its settings and weights: another probe of the same run has a state of its own."""
    batch_size, known = _batch_size(subject, settings), subject.protocol(settings)
    steps_per_epoch = len(subject.train) // batch_size
    work = {name: value for name, value in known.items() if name not in FREE}
    name = f"linear_state_{short_name(work)}.pt"
    state = None if folder is None else folder / name
    return Course(steps_per_epoch, settings.epochs * steps_per_epoch, state, known)


def _cached_batches(
    seen: Extracted, held_out: Tensor, batch_size: int, settings: Linear, first_step: int
) -> Iterator[Batch]:
    """All images of each batch, from memory; one that could not be read is passed over."""
    row_of = {place: row for row, place in enumerate(seen.places)}
    sampler = StepSampler(len(held_out), batch_size, settings.epochs, seed=settings.seed, start_step=first_step)
    for keys in sampler:
        places = [index for _, index in keys if index in row_of]
        rows = torch.tensor([row_of[place] for place in places])
        yield Batch(seen.labelled.features[rows], seen.labelled.labels[rows], held_out[places])


@torch.no_grad()
def _live_batches(
    subject: Subject,
    network: ProbeFeatures,
    held_out: Tensor,
    batch_size: int,
    settings: Linear,
    console: Console,
    first_step: int,
) -> Iterator[Batch]:
    """The share of this process in each batch, cropped and passed through the backbone anew."""
    loaded = crop_batches(
        CropDataset(subject.train, subject.size, settings.seed),
        batch_size=batch_size,
        epochs=settings.epochs,
        start_step=first_step,
        workers=settings.workers,
        device=subject.device,
        on_unreadable=say_unreadable(console),
    )
    for batch in loaded:
        features, _ = network(normalised(batch.views.to(subject.device, non_blocking=True)))
        yield Batch(features.float(), batch.labels, held_out[batch.places])


def _table(rates: tuple[float, ...], accuracies: list[Accuracy], chosen: int) -> Table:
    table = Table("rate", "top-1 %", "95 % interval", "top-5 %", "")
    for i, (rate, accuracy) in enumerate(zip(rates, accuracies, strict=True)):
        table.add_row(f"{rate:g}", *accuracy.shown(), "chosen on held-out train images" if i == chosen else "")
    return table
