"""Damaged files by the hundred: each must be read or refused in one sentence, without a traceback, within seconds."""

import random
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from faults.damaged import broken_checkpoint, broken_image, broken_parquet, broken_tar
from faults.launch import Outcome
from scfs.data.decode import Unreadable, decode
from scfs.data.loader import CentreDataset
from scfs.data.sources import open_train
from scfs.data.views import centre_view, crop_and_flip
from scfs.errors import UserError
from scfs.runs import checkpoint
from scfs.weights.read import read_weights

SLOW = 5.0  # seconds
REFUSED = "refused"
Read = Callable[[Path], bool]  # whether all of a file could be read


def damaged(folder: Path, random_: random.Random, *, kind: str) -> Outcome:
    """Damage a file and read it."""
    name, make, read = KINDS[kind]
    folder.mkdir(parents=True)
    path = folder / name
    path.write_bytes(make(np.random.default_rng(random_.getrandbits(64))))
    outcome = try_to_read(read, path)
    if outcome.survived:
        path.unlink()
    return outcome


def try_to_read(read: Read, path: Path) -> Outcome:
    """Read a file; anything but a result or a sentence, soon, is a failure."""
    start = time.monotonic()
    try:
        survived, note = True, "" if read(path) else REFUSED
    except (UserError, Unreadable) as error:
        survived = "\n" not in str(error).strip() and bool(str(error))
        note = REFUSED if survived else f"{path}: not a sentence: {error}"
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        survived, note = False, f"{path}: {type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno})"
    if (seconds := time.monotonic() - start) > SLOW:
        survived, note = False, f"{path}: {seconds:.1f} s"
    return Outcome(survived, note=note)


def _read_image(path: Path) -> bool:
    image = decode(path)
    centre_view(image, 32)
    crop_and_flip(image, 32, seed=0)
    return True


def _read_source(path: Path) -> bool:
    source = open_train(str(path))
    dataset = CentreDataset(source, 32, range(len(source)))
    return not any(dataset[i].unreadable for i in range(min(20, len(source))))


def _read_checkpoint(path: Path) -> bool:
    try:
        read_weights(str(path))
    except UserError:
        checkpoint.load(path)
    return True


KINDS: dict[str, tuple[str, Callable[[np.random.Generator], bytes], Read]] = {
    "image": ("image.jpg", broken_image, _read_image),
    "tar": ("shard.tar", broken_tar, _read_source),
    "parquet": ("data.parquet", broken_parquet, _read_source),
    "checkpoint": ("last.pt", broken_checkpoint, _read_checkpoint),
}
FAULTS = {
    "a damaged image": (2000, partial(damaged, kind="image")),
    "a damaged tar": (500, partial(damaged, kind="tar")),
    "a damaged parquet": (500, partial(damaged, kind="parquet")),
    "a damaged checkpoint": (200, partial(damaged, kind="checkpoint")),
}
