import io
import multiprocessing
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import cv2
from PIL import Image
from rich.console import Console

from scfs.bench.ours import CPU
from scfs.bench.page import check_page, show
from scfs.bench.peers import TorchvisionViews
from scfs.bench.settings import BenchData
from scfs.bench.timing import interleaved
from scfs.data.decode import Unreadable, decode
from scfs.data.loader import StepSampler, ViewDataset, view_loader
from scfs.data.packed_batch import stack_images
from scfs.data.scenes import render_scene
from scfs.data.views import MultiCrop, normalize_views
from scfs.errors import UserError
from scfs.training.cpu import cpu_setup

SCALES: dict[str, Any] = {"global_scale": (0.14, 1.0), "local_scale": (0.05, 0.14)}  # the paper's
USUAL, REFERENCE = "torchvision on PIL, to floats", "reference"
WORKERS, BATCH, BATCHES, TRIALS = 2, 16, 32, 5


def bench_data(settings: BenchData, console: Console) -> dict[str, float]:
    """Time the view paths on one core, decoding included, image by image in turn: the `scfs bench data` command.

    Returns the median CPU seconds of each.
    """
    check_page(settings.write)
    cv2.setNumThreads(0)
    with cpu_setup(CPU, 1):
        return _bench_data(settings, console)


def _bench_data(settings: BenchData, console: Console) -> dict[str, float]:
    encoded = _read(settings.image) if settings.image else sample_jpeg()
    sizes: dict[str, Any] = settings.model_dump(include={"num_local_views", "global_size", "local_size"})
    fast, reference = MultiCrop(**sizes, **SCALES), MultiCrop(**sizes, **SCALES, path="reference")
    uncoloured = MultiCrop(**sizes, **SCALES, colours="device")
    jobs: dict[str, Callable[[int], object]] = {
        "decode only": lambda _: decode(encoded),
        USUAL: partial(TorchvisionViews(**sizes), encoded),
        REFERENCE: lambda turn: reference(decode(encoded), turn),
        "fast": lambda turn: fast(decode(encoded), turn),
        "fast, to floats": lambda turn: normalize_views(fast(decode(encoded), turn)),
        "fast, colours left to the device": lambda turn: uncoloured(decode(encoded), turn),
        "fast, colours batched, to floats": lambda turn: normalize_views(
            stack_images([uncoloured(decode(encoded), turn)])
        ),
    }
    seconds = interleaved(jobs, settings.rounds, clock=time.process_time)
    against = {USUAL: "vs torchvision", REFERENCE: "vs reference"}
    rows = [
        {
            "views": name,
            "ms per image": f"{1000 * median:.1f}",
            **{column: f"{median / seconds[base]:.3f}" for base, column in against.items()},
        }
        for name, median in seconds.items()
    ]
    overhead = loader_overhead(encoded, fast)
    workers = {"views": f"{WORKERS} loader workers add", "ms per image": f"{100 * overhead:.0f} %"}
    rows.append(workers | dict.fromkeys(against.values(), ""))
    show(console, _title(settings, decode(encoded), len(encoded)), rows, write=settings.write)
    return seconds


def loader_overhead(encoded: bytes, multi_crop: MultiCrop) -> float:
    """What loader workers add to the time of the views themselves, as a fraction of it.

    The views alone are timed in as many processes as there are workers, which do not send them. The two take turns.
    """
    dataset = ViewDataset(_Repeated(encoded), multi_crop, seed=0)
    alone, loaded = zip(*((_alone(dataset), _loaded(dataset)) for _ in range(TRIALS)), strict=True)
    return statistics.median(loaded) / statistics.median(alone) - 1


def _alone(dataset: ViewDataset) -> float:
    """Seconds per batch if the views stay in the process that makes them."""
    shards = [range(worker, BATCH * BATCHES, WORKERS) for worker in range(WORKERS)]
    with multiprocessing.get_context("fork").Pool(WORKERS) as pool:
        return max(pool.map(partial(_seconds, dataset), shards)) / BATCHES


def _loaded(dataset: ViewDataset) -> float:
    """Seconds per batch through the loader."""
    batches = view_loader(dataset, StepSampler(BATCH * BATCHES, BATCH, 1, seed=0), workers=WORKERS, pin=False)
    ends = [time.perf_counter() for _ in batches]
    first = BATCHES // 2  # by then the workers' head start is used up
    return (ends[-1] - ends[first]) / (BATCHES - 1 - first)


def _seconds(dataset: ViewDataset, indices: range) -> float:
    start = time.perf_counter()
    for index in indices:
        dataset[0, index]
    return time.perf_counter() - start


class _Repeated:
    """A source that repeats one encoded image."""

    classes: tuple[str, ...] = ()

    def __init__(self, encoded: bytes):
        self.encoded = encoded

    def __len__(self) -> int:
        return BATCH * BATCHES

    def image(self, index: int) -> Image.Image:  # noqa: ARG002 - all are the same
        return decode(self.encoded)

    def label(self, index: int) -> int:
        raise NotImplementedError

    def name(self, index: int) -> str:
        return f"image {index}"


def sample_jpeg() -> bytes:
    """A scene of 500 x 375 pixels as a JPEG, about the size of ImageNet's photos."""
    image = Image.fromarray(render_scene(0, "train", 0, size=500).image).crop((0, 60, 500, 435))
    file = io.BytesIO()
    image.save(file, "JPEG", quality=90)
    return file.getvalue()


def _read(path: str) -> bytes:
    try:
        decode(path)
    except Unreadable as error:
        raise UserError(f"{error}; give --image an image file.") from None
    return Path(path).read_bytes()


def _title(settings: BenchData, image: Image.Image, size: int) -> str:
    views = f"2 x {settings.global_size} + {settings.num_local_views} x {settings.local_size} px"
    return f"{views} of a {image.width} x {image.height} image ({size // 1000} kB), one core"
