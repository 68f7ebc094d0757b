"""What large photos cost in every epoch: loading a photo as a camera makes it, and its copy by `scfs resize-data`.

    python benchmarks/photo_size.py [--write PAGE.md]

The photo is a drawn scene of 4000 x 3000 pixels with noise, as a JPEG; the views are those of `own_photos`.
"""

import argparse
import io
import time

import cv2
import numpy as np
import torch
from PIL import Image
from rich.console import Console

from scfs.bench.page import show
from scfs.bench.timing import interleaved
from scfs.config import Config
from scfs.data.decode import decode
from scfs.data.scenes import render_scene
from scfs.data.views import MultiCrop
from scfs.data_resize.copies import reduced
from scfs.data_resize.settings import ResizeData
from scfs.pretraining.auto import resolve
from scfs.recipe import check
from scfs.recipes.catalogue import read_recipe

NOISE = 5  # standard deviation, in levels of 255


def photo() -> Image.Image:
    """A photo of 12 megapixels."""
    scene = Image.fromarray(render_scene(0, "train", 0, size=1000).image).resize((4000, 4000), Image.Resampling.BICUBIC)
    pixels = np.asarray(scene.crop((0, 500, 4000, 3500)), np.float32)
    noise = np.random.default_rng(0).normal(0, NOISE, pixels.shape)
    return Image.fromarray((pixels + noise).clip(0, 255).astype(np.uint8))


def jpeg(image: Image.Image, quality: int) -> bytes:
    file = io.BytesIO()
    image.save(file, "JPEG", quality=quality)
    return file.getvalue()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", default="")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    cv2.setNumThreads(0)
    config, _ = resolve(check(Config, read_recipe("own_photos", "pretrain").values), 5000, torch.device("cpu"))
    views, settings, large = MultiCrop(**config.crops), ResizeData(), photo()
    files = {"as it is": jpeg(large, 90), "resized": jpeg(reduced(large, settings.side), settings.quality)}
    jobs = {name: lambda turn, data=data: views(decode(data), turn) for name, data in files.items()}
    seconds = interleaved(jobs, 20, clock=time.process_time)
    rows = [
        {
            "photo": name,
            "pixels": "{} x {}".format(*decode(data).size),
            "kB": f"{len(data) / 1000:.0f}",
            "ms": f"{1000 * seconds[name]:.1f}",
            "vs as it is": f"{seconds[name] / seconds['as it is']:.3f}",
        }
        for name, data in files.items()
    ]
    show(Console(), "Decoding a photo and making its views, one core", rows, write=arguments.write)


if __name__ == "__main__":
    main()
