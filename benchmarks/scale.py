"""What grows with the number of images, at 1, 10 and 100 times a base size: seconds, and memory at the peak.

    python benchmarks/scale.py [--largest 100] [--write PAGE.md]

Each measurement runs in a process of its own; its memory is the peak above what the process had before. With --write,
the table replaces the one between the marks of the page.
"""

import argparse
import io
import multiprocessing
import os
import socket
import tarfile
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import numpy as np
import torch
from PIL import Image
from rich.console import Console

from scfs import distributed
from scfs.bench.page import Row, show
from scfs.data.loader import StepSampler
from scfs.data.parquet import open_parquet
from scfs.data.shards import open_shards
from scfs.evaluate import embed_parts
from scfs.evaluate.embed import embed
from scfs.evaluate.features import LabelledFeatures
from scfs.evaluate.knn.neighbours import knn_accuracy
from scfs.evaluate.settings import Embed
from scfs.markdown import markdown_table
from scfs.training.cpu import STATUS, peak_memory

MARK = "<!-- scale -->"
CPU = torch.device("cpu")
DIM, QUERIES, CLASSES = 128, 500, 100
PART = 200  # images per file of `scfs embed` here, instead of 10,000


class Measured(NamedTuple):
    """What some work took."""

    seconds: float
    megabytes: float  # at the peak, above what there was before


def measured(work: Callable[[], object]) -> Measured:
    """Time and peak memory of some work in this process."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from what is in use
    [before] = (int(line.split()[1]) for line in STATUS.read_text().splitlines() if line.startswith("VmRSS:"))
    start = time.perf_counter()
    work()
    seconds = time.perf_counter() - start
    return Measured(seconds, (peak_memory(CPU) - 1024 * before) / 1e6)


def epoch_order(images: int, _: Path) -> Measured:
    """The first step of an epoch."""
    return measured(lambda: next(iter(StepSampler(images, 256, 1, seed=0))))


def make_tar(path: Path, images: int) -> None:
    """Empty images, each with its class."""
    with path.open("wb") as file:
        for index in range(images):
            for name, data in ((f"{index:08d}.jpg", b""), (f"{index:08d}.cls", b"%d" % (index % CLASSES))):
                info = tarfile.TarInfo(name)
                info.size = len(data)
                file.write(info.tobuf(tarfile.USTAR_FORMAT) + data.ljust(-(-len(data) // 512) * 512, b"\0"))
        file.write(bytes(1024))


def tar_index(images: int, folder: Path) -> Measured:
    """Open a tar file that has not been opened before."""
    make_tar(folder / "images.tar", images)
    return measured(lambda: open_shards([str(folder / "images.tar")]))


def parquet_index(images: int, folder: Path) -> Measured:
    """Open a parquet file."""
    import pyarrow as pa
    import pyarrow.parquet

    table = pa.table({"image": [b"%08d" % i for i in range(images)], "label": [i % CLASSES for i in range(images)]})
    pyarrow.parquet.write_table(table, folder / "images.parquet", row_group_size=1000, compression="none")
    del table
    return measured(lambda: open_parquet([str(folder / "images.parquet")]))


def knn(images: int, _: Path) -> Measured:
    """Search the process's shard of the features; the rows of a shard are drawn, not cut from all."""
    random = torch.Generator().manual_seed(distributed.rank())
    indices = torch.arange(distributed.rank(), images, distributed.world_size())
    asked = torch.arange(distributed.rank(), QUERIES, distributed.world_size())

    def search() -> None:
        train, val = (
            LabelledFeatures(torch.randn(len(rows), DIM, generator=random), rows % CLASSES) for rows in (indices, asked)
        )
        knn_accuracy(train, val, num_classes=CLASSES, indices=indices)

    with distributed.process_group(CPU):
        return measured(search)


def make_photos(folder: Path, images: int) -> str:
    """Small photos; of more than a hundred, the others are links to the first."""
    folder.mkdir()
    for index in range(images):
        path, first = folder / f"{index:06d}.jpg", folder / f"{index % 100:06d}.jpg"
        if index < 100:
            pixels = np.random.default_rng(index).integers(0, 256, (48, 48, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(path)
        else:
            path.hardlink_to(first)
    return str(folder)


def embedding(images: int, folder: Path) -> Measured:
    """Features of photos as a folder of parquet files, after those of a few others."""
    settings = Embed(size=32, workers=0, device="cpu", batch_size=50)

    def write(name: str, images: int) -> Measured:
        source = make_photos(folder / name, images)
        out, console = folder / f"{name}_features", Console(file=io.StringIO())
        return measured(lambda: embed("random:resnet10_half", source, out, settings, console))

    with patch.object(embed_parts, "PART", PART):
        write("warm_up", 2 * PART)
        return write("photos", images)


class Case(NamedTuple):
    """Work to measure at several sizes."""

    what: str
    work: Callable[[int, Path], Measured]
    base: int  # images
    factors: tuple[int, ...] = (1, 10, 100)
    processes: int = 1


CASES = [
    Case("order of an epoch, its first step", epoch_order, 100_000),
    Case("index of a tar file", tar_index, 10_000),
    Case("index of a parquet file", parquet_index, 10_000),
    Case(f"k-NN of {QUERIES} queries, {DIM} channels", knn, 5_000),
    Case(f"k-NN of {QUERIES} queries, {DIM} channels", knn, 5_000, processes=2),
    Case(f"scfs embed, files of {PART} images", embedding, 400, factors=(1, 10)),
]


def as_process(case: Case, images: int, rank: int, port: int) -> Measured:
    """Measure a case in this process, one of several."""
    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(case.processes), LOCAL_WORLD_SIZE=str(case.processes))
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SCFS_CACHE"] = f"{folder}/cache"
        return case.work(images, Path(folder))


def run(case: Case, factor: int) -> Row:
    """A row of the table: the slowest and the largest of the processes."""
    images = factor * case.base
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # Not a `multiprocessing.Pool`, which replaces a process that is killed, without end.
    with ProcessPoolExecutor(case.processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        jobs = [pool.submit(as_process, case, images, rank, port) for rank in range(case.processes)]
        found = [job.result() for job in jobs]
    return {
        "what": case.what,
        "processes": str(case.processes),
        "images": f"{images:,}",
        "seconds": f"{max(each.seconds for each in found):.2f}",
        "MB per process": f"{max(each.megabytes for each in found):.0f}",
    }


def main() -> None:
    """Measure all cases and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--largest", type=int, default=100, help="times the base size")
    parser.add_argument("--write", type=Path, help="page whose table is replaced")
    args = parser.parse_args()
    rows = [run(case, factor) for case in CASES for factor in case.factors if factor <= args.largest]
    show(Console(), "What grows with the number of images", rows)
    if args.write:
        before, _, rest = args.write.read_text(encoding="utf-8").partition(MARK)
        _, _, after = rest.partition(MARK)
        table = markdown_table(list(rows[0]), [list(row.values()) for row in rows])
        args.write.write_text(f"{before}{MARK}\n\n{table}\n\n{MARK}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
