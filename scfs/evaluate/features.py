from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch
from rich.console import Console
from rich.progress import Progress
from torch import Tensor, nn

from scfs.data.loader import CentreViews, centre_loader, num_workers
from scfs.data.sources import Source
from scfs.data.unreadable import refuse_unreadable, show_left_out
from scfs.data.views import normalize
from scfs.distributed import gather, sum_counts
from scfs.errors import UserError
from scfs.evaluate.sharding import in_order, shard_of


class LabelledFeatures(NamedTuple):
    """Pooled features and classes of the images of a source."""

    features: Tensor  # (images, C) float32
    labels: Tensor  # (images,); -1 where there are no classes


class NonFiniteFeaturesError(UserError):
    """Features are inf or NaN, so that no score can be computed from them."""


class Extracted(NamedTuple):
    """Features of the images that can be read, in the order of the source: this process's shard, or all."""

    labelled: LabelledFeatures
    indices: Tensor  # (images,) in the source
    unreadable: list[str]  # name and reason of each other image, in any process


def extract(
    backbone: nn.Module,
    source: Source,
    *,
    size: int,
    batch_size: int,
    workers: int,
    device: torch.device,
    on_batch: Callable[[int], None] = lambda _: None,
    limit_unreadable: bool = True,
) -> Extracted:
    """Pooled features of the centre views of a source; the backbone's training mode is restored afterwards.

    Each process computes and keeps the features of its shard of the images, on its device if they fit there; `whole`
    has all of them. Too many unreadable images are an error, unless there is no limit.
    """
    shard, pin = shard_of(len(source)), device.type == "cuda"
    batches = centre_loader(source, size, shard, batch_size=batch_size, workers=workers, pin=pin)
    was_training = {module: module.training for module in backbone.modules()}
    backbone.eval()
    try:
        found, damaged = _extract_shard(backbone, batches, len(shard), device, on_batch)
    finally:
        for module, training in was_training.items():
            module.training = training
    unreadable = [problem for each in gather(found.unreadable) for problem in each]
    if limit_unreadable:
        refuse_unreadable(unreadable, len(source))
    refuse_non_finite(*sum_counts(damaged, len(found.indices)))
    return found._replace(unreadable=unreadable)


def whole(shard: Extracted) -> Extracted:
    """The features of all processes, on the CPU of rank zero; the other processes get none."""
    indices, features, labels = in_order(shard.indices, *shard.labelled)
    return Extracted(LabelledFeatures(features, labels), indices, shard.unreadable)


def refuse_non_finite(damaged: int, num_images: int) -> None:
    """Raise an error if the features of some images are not finite."""
    if damaged:
        raise NonFiniteFeaturesError(
            f"The features of {damaged} of {num_images} images are not finite: the weights are damaged, or their "
            "training diverged; use another checkpoint, or train again at a lower rate."
        )


def effective_rank(features: Tensor) -> float:
    """Effective rank of features (images, C): the exponential of the entropy of their singular values (RankMe).

    Between 1, all features parallel, and C; 0 if some are not finite. It needs no labels.
    """
    if not features.isfinite().all():
        return 0.0
    values = torch.linalg.svdvals(features.double())
    fractions = values / values.sum().clamp(min=1e-300)
    return float(torch.special.entr(fractions).sum().exp())


def extract_with_progress(
    backbone: nn.Module,
    sources: Sequence[Source],
    *,
    size: int,
    batch_size: int,
    workers: int | str,
    device: torch.device,
    console: Console,
    limit_unreadable: bool = True,
) -> list[Extracted]:
    """`extract` of several sources, with a progress bar.

    Lists the unreadable images or, without a limit on them, leaves that to the caller.
    """
    count = num_workers(workers, device)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("features", total=sum(len(shard_of(len(source))) for source in sources))
        found = [
            extract(
                backbone,
                source,
                size=size,
                batch_size=batch_size,
                workers=count,
                device=device,
                on_batch=lambda images: progress.advance(task, images),
                limit_unreadable=limit_unreadable,
            )
            for source in sources
        ]
    if limit_unreadable:
        show_left_out((problem for each in found for problem in each.unreadable), console)
    return found


def extract_readable(
    backbone: nn.Module,
    source: Source,
    *,
    size: int,
    batch_size: int,
    workers: int | str,
    device: torch.device,
    console: Console,
) -> Extracted:
    """`extract` of the images that can be read, however many cannot; for jobs that list those when they are done."""
    [found] = extract_with_progress(
        backbone,
        [source],
        size=size,
        batch_size=batch_size,
        workers=workers,
        device=device,
        console=console,
        limit_unreadable=False,
    )
    if not any(sum_counts(len(found.indices))):
        raise UserError(
            f"None of the {len(source)} images can be read, the first: {found.unreadable[0]}; give other images."
        )
    return found


@torch.no_grad()
def _extract_shard(
    backbone: nn.Module,
    batches: Iterable[CentreViews],
    num_images: int,
    device: torch.device,
    on_batch: Callable[[int], None],
) -> tuple[Extracted, int]:
    """The process's images, and how many of their features are not finite."""
    stored, damaged = None, torch.zeros((), dtype=torch.long, device=device)
    indices, labels, count = list[Tensor](), list[Tensor](), 0
    unreadable = list[str]()
    for batch in batches:
        pooled, _ = backbone(normalize(batch.views.to(device, non_blocking=True)))
        if stored is None:  # all of them at once: a list of parts would take twice the memory to join
            stored = torch.empty(num_images, pooled.shape[1], device=_storage(device, num_images * pooled.shape[1]))
        read = torch.tensor([not problem for problem in batch.unreadable])
        kept = pooled if read.all() else pooled[read.to(device)]
        stored[count : count + len(kept)] = kept
        damaged += (~kept.isfinite()).any(dim=1).sum()
        indices.append(batch.indices[read])
        labels.append(batch.labels[read])
        unreadable += [problem for problem in batch.unreadable if problem]
        count += len(kept)
        on_batch(len(batch.views))
    assert stored is not None
    labelled = LabelledFeatures(stored[:count], torch.cat(labels).to(stored.device))
    return Extracted(labelled, torch.cat(indices).to(stored.device), unreadable), int(damaged)


def _storage(device: torch.device, numbers: int) -> torch.device:
    """Where to keep so many float32: on the device or, if they would take more than half of what is free there, not."""
    if device.type == "cuda" and 8 * numbers > torch.cuda.mem_get_info(device)[0]:
        return torch.device("cpu")
    return device
