from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from PIL import Image
from rich.console import Console
from torch import Tensor

from scfs.backbones import Backbone, fingerprint, load_backbone
from scfs.data.decode import Unreadable, decode
from scfs.data.locations import absolute_source
from scfs.data.paths import readable
from scfs.data.same_images import refuse_different_images
from scfs.data.skipped import show_skipped, skipped_by_suffix
from scfs.data.sources import Source, open_all
from scfs.data.unreadable import show_left_out
from scfs.data.views import centre_view, normalize
from scfs.distributed import choose_device, is_rank_zero, on_rank_zero, process_group
from scfs.errors import UserError
from scfs.evaluate.embed_parts import embed_in_parts
from scfs.evaluate.feature_files import check_out, write_features
from scfs.evaluate.features import extract_readable, whole
from scfs.evaluate.own_data import own_data
from scfs.evaluate.settings import Embed
from scfs.training.cpu import cpu_setup


class Match(NamedTuple):
    """An image and its similarity to the query."""

    cosine: float
    name: str

    def __repr__(self) -> str:
        return f"Match({self.cosine:.4f}, {self.name!r})"


def embed(target: str, data: str, out: Path | None, settings: Embed, console: Console) -> list[Match]:
    """Write the features of every image of a source, or find the images most similar to one: the `scfs embed` command.

    OUT.npy holds (images, C) float32, and OUT.txt next to it the images' names, one per line; OUT.parquet has both,
    as columns `path` and `feature`. OUT without a suffix is a folder of such parquet files. Bad input is refused before
    any features are computed.
    """
    if out is None and not settings.query:
        raise UserError("scfs embed needs a file to write, or --query IMAGE --nearest K; give one.")
    in_parts = out is not None and (out.suffix == "" or out.is_dir())
    if in_parts and settings.query:
        raise UserError(f"--query cannot be answered while {out} is written as a folder; use two commands.")
    max_pixels = own_data(target).max_pixels
    query = _read_query(settings.query, max_pixels) if settings.query else None
    source = open_all(data, max_pixels=max_pixels)
    if out is not None and not in_parts:
        check_out(out, (source.name(i) for i in range(len(source))))
    device = choose_device(settings.device)
    loaded = load_backbone(target, name=settings.backbone or None, network=settings.network, seed=settings.seed)
    size = loaded.evaluated_size(settings.size)
    backbone = loaded.backbone.to(device).eval()
    with process_group(device), cpu_setup(device):
        refuse_different_images(source)
        if out is not None and in_parts:
            about = {"weights": fingerprint(backbone), "size": size, "data": absolute_source(data)}
            matches, unreadable = list[Match](), embed_in_parts(backbone, source, out, about, settings, console)
        else:
            names, features, unreadable = _embed_all(backbone, source, size, settings, console)
            if out is not None and is_rank_zero():
                write_features(out, names, features)
                console.print(f"{out}: {len(names)} x {features.shape[1]} features of {data} at {size} px")
            looked_for = None if query is None else embed_image(backbone, query, size)
            matches = (
                []
                if looked_for is None
                else on_rank_zero(lambda: most_similar(features, names, looked_for, settings.nearest))
            )
    for match in matches:
        console.print(f"{match.cosine:7.4f}  {readable(match.name)}")
    show_left_out(unreadable, console)
    show_skipped(skipped_by_suffix(data, all_splits=True), console)
    return matches


def _embed_all(
    backbone: Backbone, source: Source, size: int, settings: Embed, console: Console
) -> tuple[list[str], Tensor, list[str]]:
    """Names and features of the images that can be read, in the order of the source, and what cannot be read.

    Only rank zero has names and features.
    """
    found = whole(
        extract_readable(
            backbone,
            source,
            size=size,
            batch_size=settings.batch_size,
            workers=settings.workers,
            device=next(backbone.parameters()).device,
            console=console,
        )
    )
    return [source.name(i) for i in found.indices.tolist()], found.labelled.features, found.unreadable


def most_similar(features: Tensor, names: Sequence[str], query: Tensor, k: int) -> list[Match]:
    """The k images whose features (images, C) have the highest cosine with a query's (C,), most similar first."""
    cosines = F.normalize(features, dim=-1) @ F.normalize(query, dim=-1)
    top = cosines.topk(min(k, len(names)))
    return [Match(*pair) for pair in zip(top.values.tolist(), [names[i] for i in top.indices.tolist()], strict=True)]


@torch.no_grad()
def embed_image(backbone: Backbone, image: Image.Image, size: int) -> Tensor:
    """The pooled feature (C,) of one image's centre view."""
    device = next(backbone.parameters()).device
    pooled: Tensor = backbone(normalize(centre_view(image, size).to(device))[None])[0]
    return pooled[0].float().cpu()


def _read_query(query: str, max_pixels: int) -> Image.Image:
    try:
        return decode(Path(query).expanduser(), max_pixels=max_pixels)
    except Unreadable as error:
        raise UserError(f"{error}; give --query an image file.") from None
