"""Features as a folder of parquet files, by any number of processes; the same command continues after a stop.

Memory does not grow with the number of images: a process holds one file's features at a time.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress
from torch import Tensor, nn

from scfs.data.loader import CentreDataset, CentreViews, load, num_workers
from scfs.data.locations import image_record
from scfs.data.sources import Source
from scfs.data.views import normalize
from scfs.distributed import gather, on_rank_zero, rank, sum_counts, waiting_for_all, world_size
from scfs.errors import UserError
from scfs.evaluate.feature_files import pyarrow_for, write_features
from scfs.evaluate.features import refuse_non_finite
from scfs.evaluate.settings import Embed
from scfs.runs.files import check_new, held, read_json, write_json

PART = 10_000  # images per file
MANIFEST = "_manifest.json"  # readers of parquet folders skip names with an underscore


def embed_in_parts(
    backbone: nn.Module,
    source: Source,
    folder: Path,
    about: dict[str, Any],
    settings: Embed,
    console: Console,
) -> list[str]:
    """Write the features of the images that no file in the folder has yet; returns which images cannot be read.

    about: the weights, the size of the images and where they are. A folder written with others is refused.
    """
    pyarrow_for(folder)
    device = next(backbone.parameters()).device
    manifest = {**about, "images_per_file": PART, **image_record(source)}
    with ExitStack() as stack:
        on_rank_zero(lambda: _open(folder, manifest, stack))
        parts = [range(first, min(first + PART, len(source))) for first in range(0, len(source), PART)]
        missing = on_rank_zero(lambda: [part for part in parts if not _path(folder, part).exists()])
        own = missing[rank() :: world_size()]
        workers, pin = num_workers(settings.workers, device), device.type == "cuda"
        dataset = CentreDataset(source, int(about["size"]), range(len(source)))
        loaded = load(dataset, workers=workers, pin=pin, batch_sampler=_batches(own, settings.batch_size))
        written, unreadable = 0, list[str]()
        with waiting_for_all(), Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
            task = progress.add_task("features", total=sum(map(len, own)))
            for part in own:
                names, features, problems = _part(backbone, loaded, part, source, device)
                if names:  # otherwise the same command tries again
                    write_features(_path(folder, part), names, features)
                written += len(names)
                unreadable += problems
                progress.advance(task, len(part))
        [total] = sum_counts(written)
        unreadable = [problem for each in gather(unreadable) for problem in each]
    if missing and not total:
        raise UserError(f"None of {len(unreadable)} images can be read, the first: {unreadable[0]}; give other images.")
    counts = f"{len(missing)} of {len(parts)} files written, with the features of {total} images"
    console.print(f"{folder}: {counts} at {about['size']} px")
    return unreadable


def _open(folder: Path, manifest: dict[str, Any], stack: ExitStack) -> None:
    """Create the folder, or check that it is one of the same features, and hold it."""
    if not folder.is_dir():
        check_new(folder)
        folder.mkdir()
    stack.enter_context(held(folder))
    before = read_json(folder / MANIFEST, {})
    if not before and any(not path.name.startswith(".") for path in folder.iterdir()):
        raise UserError(f"{folder} has other files; choose a new or an empty folder for the features.")
    for name, value in manifest.items():
        if before and before.get(name) != value:
            raise UserError(
                f"{folder} holds features with other settings ({name} was {before.get(name)}, now {value}); choose "
                "another folder."
            )
    write_json(folder / MANIFEST, manifest)


def _path(folder: Path, part: range) -> Path:
    """Named by the first image and the one after the last."""
    return folder / f"part-{part.start:09d}-{part.stop:09d}.parquet"


def _batches(parts: Sequence[range], batch_size: int) -> Iterator[range]:
    """The batches of parts, one part after the other, none across the end of a part."""
    for part in parts:
        for first in range(0, len(part), batch_size):
            yield part[first : first + batch_size]


@torch.no_grad()
def _part(
    backbone: nn.Module, loaded: Iterator[CentreViews], part: range, source: Source, device: torch.device
) -> tuple[list[str], Tensor, list[str]]:
    """Names and features of the images of a part that can be read, and what cannot be read."""
    indices, features, unreadable = list[int](), list[Tensor](), list[str]()
    for batch in loaded:
        pooled, _ = backbone(normalize(batch.views.to(device, non_blocking=True)))
        read = torch.tensor([not problem for problem in batch.unreadable])
        features.append(pooled.float().cpu()[read])
        indices += batch.indices[read].tolist()
        unreadable += [problem for problem in batch.unreadable if problem]
        if int(batch.indices[-1]) + 1 == part.stop:
            break
    joined = torch.cat(features)
    refuse_non_finite(int((~joined.isfinite()).any(dim=1).sum()), len(joined))
    return [source.name(index) for index in indices], joined, unreadable
