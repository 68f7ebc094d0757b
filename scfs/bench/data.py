import io
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import torch
from PIL import Image
from rich.console import Console
from rich.table import Table

from scfs.config import BenchData
from scfs.data.decode import Unreadable, decode
from scfs.data.scenes import render_scene
from scfs.data.views import MultiCrop
from scfs.errors import UserError

SCALES = {"global_scale": (0.14, 1.0), "local_scale": (0.05, 0.14)}  # the paper's


def bench_data(settings: BenchData, console: Console) -> dict[str, float]:
    """Time the view paths on one core, decoding included, image by image in turn: the `scfs bench data` command.

    Returns each path's median as a share of the reference path's.
    """
    torch.set_num_threads(1)
    cv2.setNumThreads(0)
    encoded = _read(settings.image) if settings.image else sample_jpeg()
    sizes: dict[str, Any] = settings.model_dump(include={"num_local_views", "global_size", "local_size"})
    jobs: dict[str, Callable[[int], object]] = {"decode only": lambda _: decode(encoded)}
    for path in ("reference", "fast"):
        jobs[path] = partial(_decode_and_cut, encoded, MultiCrop(**{**sizes, **SCALES, "path": path}))
    medians = interleaved(jobs, settings.rounds)
    shares = {name: median / medians["reference"] for name, median in medians.items()}
    image = decode(encoded)
    table = Table("path", "ms an image", "of reference", title=_title(settings, image, len(encoded)))
    for name, median in medians.items():
        table.add_row(name, f"{1000 * median:.1f}", f"{shares[name]:.3f}")
    console.print(table)
    return shares


def _decode_and_cut(encoded: bytes, multi_crop: MultiCrop, seed: int) -> object:
    return multi_crop(decode(encoded), seed)


def interleaved(jobs: dict[str, Callable[[int], object]], rounds: int) -> dict[str, float]:
    """Median seconds of processor time of each job; they take turns, so that a noisy machine is noisy to all."""
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for seed in range(rounds + 1):
        for name, job in jobs.items():
            start = time.process_time()
            job(seed)
            if seed:  # the first turn warms up
                seconds[name].append(time.process_time() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}


def sample_jpeg() -> bytes:
    """A scene of 500 x 375 pixels as a JPEG, about the size of ImageNet's photos."""
    image = Image.fromarray(render_scene(0, "train", 0, size=500).image).crop((0, 60, 500, 435))
    file = io.BytesIO()
    image.save(file, "JPEG", quality=90)
    return file.getvalue()


def _read(path: str) -> bytes:
    try:
        encoded = Path(path).read_bytes()
        decode(encoded, name=path)
    except (OSError, Unreadable) as error:
        raise UserError(f"Cannot read image {path}: {error}; give --image an image file.") from None
    return encoded


def _title(settings: BenchData, image: Image.Image, size: int) -> str:
    views = f"2 x {settings.global_size} + {settings.num_local_views} x {settings.local_size} px"
    return f"{views} of a {image.width} x {image.height} image ({size // 1000} kB), one core"
