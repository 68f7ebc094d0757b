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
from scfs.distributed import gather, rank, world_size
from scfs.errors import UserError


class LabelledFeatures(NamedTuple):
    """Pooled features and classes of the images of a source."""

    features: Tensor  # (images, C) float32, on the CPU
    labels: Tensor  # (images,); -1 where there are no classes


class NonFiniteFeaturesError(UserError):
    """Features are inf or NaN, so that no score can be computed from them."""


class Extracted(NamedTuple):
    """Features of every image that can be read, in the order of the source."""

    labelled: LabelledFeatures
    indices: list[int]  # of the images, in the source
    unreadable: list[str]  # name and reason of each other image


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

    Each process computes its shard of the images, and all get all the features. Too many unreadable images are an
    error, unless there is no limit.
    """
    if len(source) < world_size():
        raise UserError(f"{len(source)} images cannot be split over {world_size()} processes; start fewer.")
    shard, pin = range(rank(), len(source), world_size()), device.type == "cuda"
    batches = centre_loader(source, size, shard, batch_size=batch_size, workers=workers, pin=pin)
    was_training = {module: module.training for module in backbone.modules()}
    backbone.eval()
    shards = gather(_extract_shard(backbone, batches, device, on_batch))
    for module, training in was_training.items():
        module.training = training
    indices, features, labels = (torch.cat(column) for column in zip(*(each[:3] for each in shards), strict=True))
    unreadable = [problem for each in shards for problem in each[3]]
    if limit_unreadable:
        refuse_unreadable(unreadable, len(source))
    refuse_non_finite(int((~features.isfinite()).any(dim=1).sum()), len(features))
    order = indices.argsort()
    labelled = LabelledFeatures(features[order], labels[order])
    return Extracted(labelled, indices[order].tolist(), unreadable)


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
        task = progress.add_task("features", total=sum(len(range(rank(), len(s), world_size())) for s in sources))
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
    if not found.indices:
        raise UserError(
            f"None of the {len(source)} images can be read, the first: {found.unreadable[0]}; give other images."
        )
    return found


@torch.no_grad()
def _extract_shard(
    backbone: nn.Module, batches: Iterable[CentreViews], device: torch.device, on_batch: Callable[[int], None]
) -> tuple[Tensor, Tensor, Tensor, list[str]]:
    """Indices, features and labels of this process's images, and what could not be read."""
    indices, features, labels, unreadable = [], [], [], []
    for batch in batches:
        pooled, _ = backbone(normalize(batch.views.to(device, non_blocking=True)))
        read = torch.tensor([not problem for problem in batch.unreadable])
        indices.append(batch.indices[read])
        features.append(pooled.float().cpu()[read])
        labels.append(batch.labels[read])
        unreadable += [problem for problem in batch.unreadable if problem]
        on_batch(len(batch.views))
    return torch.cat(indices), torch.cat(features), torch.cat(labels), unreadable
