"""Where a source is, independent of the working directory, and what stays the same when it moves."""

import os
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from scfs.data.public import PUBLIC
from scfs.data.sources import Source
from scfs.runs.files import digest_of

NUM_NAMES = 1000  # of images, to tell whether two sources have the same


def absolute_source(source: str) -> str:
    """A source with its path made absolute: a folder, a file, a pattern, or the DIR of KIND:DIR.

    Sources without a path, such as scenes, stay as they are. Links are not followed, since their names may be all that
    stays the same when data moves.
    """
    if not source or source == "scenes" or source.startswith("scenes:") or "://" in source:
        return source
    kind, colon, folder = source.partition(":")
    if colon and kind in PUBLIC:
        return f"{kind}:{absolute_path(folder)}" if folder else source
    return absolute_path(source)


def absolute_path(path: str) -> str:
    """A path independent of the working directory; an empty one stays empty."""
    return os.path.abspath(Path(path).expanduser()) if path else ""  # noqa: PTH100 - Path keeps `..`


def image_record(source: Source) -> dict[str, Any]:
    """What stays the same when images move: their number, and a hash of file names and classes, of a sample if many."""
    indices = np.linspace(0, len(source) - 1, min(len(source), NUM_NAMES)).round().astype(int).tolist()
    names = [(PurePath(source.name(i)).name, source.label(i) if source.classes else -1) for i in indices]
    return {"images": len(source), "image_names": digest_of([source.classes, names])}
