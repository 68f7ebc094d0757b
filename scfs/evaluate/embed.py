import importlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from rich.console import Console
from torch import Tensor

from scfs.backbones import Backbone, load_backbone
from scfs.data.decode import Unreadable, decode
from scfs.data.paths import readable
from scfs.data.skipped import show_skipped
from scfs.data.sources import open_all
from scfs.data.unreadable import show_left_out
from scfs.data.views import centre_view, normalize
from scfs.distributed import choose_device, is_rank_zero, process_group
from scfs.errors import UserError
from scfs.evaluate.features import extract_readable
from scfs.evaluate.settings import Embed
from scfs.runs.files import check_new, write_new
from scfs.training.cpu import cpu_setup

ROWS = 10_000  # per row group of a Parquet file, whose lists cannot hold more than 2^31 numbers in all


class Match(NamedTuple):
    """An image and its similarity to the query."""

    cosine: float
    name: str

    def __repr__(self) -> str:
        return f"Match({self.cosine:.4f}, {self.name!r})"


def embed(target: str, data: str, out: Path | None, settings: Embed, console: Console) -> list[Match]:
    """Write the features of every image of a source, or find the images most similar to one: the `scfs embed` command.

    OUT.npy holds (images, C) float32, and OUT.txt next to it the images' names, one per line; OUT.parquet has both,
    as columns `path` and `feature`. Bad input is refused before any features are computed.
    """
    if out is None and not settings.query:
        raise UserError("scfs embed needs a file to write, or --query IMAGE --nearest K; give one.")
    query = _read_query(settings.query) if settings.query else None
    source = open_all(data)
    names = [source.name(i) for i in range(len(source))]
    if out is not None:
        check_out(out, names)
    device = choose_device(settings.device)
    loaded = load_backbone(target, name=settings.backbone or None, network=settings.network, seed=settings.seed)
    size = loaded.evaluated_size(settings.size)
    backbone = loaded.backbone.to(device).eval()
    with process_group(device), cpu_setup(device):
        found = extract_readable(
            backbone,
            source,
            size=size,
            batch_size=settings.batch_size,
            workers=settings.workers,
            device=device,
            console=console,
        )
    features, names = found.labelled.features, [names[index] for index in found.indices]
    if out is not None and is_rank_zero():
        write_features(out, names, features)
        console.print(f"{out}: {len(names)} x {features.shape[1]} features of {data} at {size} px", **_plain)
    matches = []
    if query is not None:
        matches = most_similar(features, names, embed_image(backbone, query, size), settings.nearest)
    for match in matches:
        console.print(f"{match.cosine:7.4f}  {readable(match.name)}", **_plain)
    show_left_out(found.unreadable, console)
    show_skipped(data, console)
    return matches


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


def check_out(out: Path, names: Sequence[str]) -> None:
    """Refuse an output file that features cannot be written to."""
    if out.suffix not in (".npy", ".parquet"):
        raise UserError(f"Cannot write features to {out}; name it .npy or .parquet.")
    check_new(out)
    if out.suffix == ".parquet":
        _pyarrow(out)
        return
    check_new(_names_file(out))
    for name in names:
        if "\n" in name or "\r" in name:
            raise UserError(
                f"Image name {name!r} has a line break, which a list cannot hold; rename it or use .parquet."
            )


def write_features(out: Path, names: Sequence[str], features: Tensor) -> None:
    """Write names and features (images, C) to new files, completely or not at all."""
    values = features.numpy()
    if out.suffix == ".parquet":
        write_new(out, lambda file: _write_parquet(file, names, values, _pyarrow(out)))
        return
    lines = "".join(f"{name}\n" for name in names)
    write_new(_names_file(out), lambda file: file.write(os.fsencode(lines)))
    try:
        write_new(out, lambda file: np.save(file, values))
    except UserError:
        _names_file(out).unlink()
        raise


def _write_parquet(file: Any, names: Sequence[str], values: np.ndarray[Any, Any], pyarrow: Any) -> None:
    schema = pyarrow.schema([("path", pyarrow.string()), ("feature", pyarrow.list_(pyarrow.float32()))])
    with importlib.import_module("pyarrow.parquet").ParquetWriter(file, schema) as writer:
        for first in range(0, len(names), ROWS):
            rows = values[first : first + ROWS]
            offsets = pyarrow.array(np.arange(len(rows) + 1, dtype=np.int32) * rows.shape[1])
            lists = pyarrow.ListArray.from_arrays(offsets, pyarrow.array(rows.reshape(-1)))
            paths = pyarrow.array([readable(name) for name in names[first : first + ROWS]])
            writer.write_table(pyarrow.table([paths, lists], schema=schema))


def _pyarrow(out: Path) -> Any:
    try:
        return importlib.import_module("pyarrow")
    except ImportError:
        raise UserError(f"Writing {out} needs pyarrow: pip install 'scfs[parquet]', or write .npy.") from None


def _read_query(query: str) -> Image.Image:
    try:
        return decode(Path(query).expanduser())
    except Unreadable as error:
        raise UserError(f"{error}; give --query an image file.") from None


def _names_file(out: Path) -> Path:
    return out.with_suffix(".txt")


_plain: dict[str, Any] = {"highlight": False, "markup": False, "soft_wrap": True}
