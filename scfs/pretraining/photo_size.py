import math
import shlex
import statistics
from contextlib import suppress
from pathlib import Path

from scfs.config import Config
from scfs.data.decode import Unreadable
from scfs.data.sources import Source

ENOUGH = 1.75  # times the side at which the smallest crops have as many pixels as their views
STEP = 32  # of the side that is advised
SAMPLED = 3  # images


def large_photos(config: Config, source: Source) -> str:
    """Advice on a folder of photos that are far larger than their views need, from a few of them; empty if it is not.

    The settings are resolved.
    """
    folder, side = config.data.source, enough_pixels(config)
    sides = []
    if Path(folder).is_dir():
        for index in {round(i * (len(source) - 1) / (SAMPLED - 1)) for i in range(SAMPLED)}:
            with suppress(Unreadable):
                sides.append(min(source.image(index).size))
    if not sides or (usual := round(statistics.median(sides))) <= 2 * side:
        return ""
    command = shlex.join(["scfs", "resize-data", folder, f"{folder.rstrip('/')}-{side}", "--side", str(side)])
    return (
        f"The photos have about {usual} pixels on the shorter side, far more than views of {config.views.global_size} "
        f"need, and decoding them may take longer than training. Make smaller copies, and train on these: {command}"
    )


def enough_pixels(config: Config) -> int:
    """A shorter side of photos at which more pixels would hardly show in any view."""
    views = config.views
    kinds = [(views.global_size, views.global_scale), (views.local_size, views.local_scale)]
    used = kinds if config.num_local_views else kinds[:1]
    needed = max(size / math.sqrt(float(scale[0])) for size, scale in used)
    return STEP * math.ceil(ENOUGH * needed / STEP)
