"""Where a source is, independent of the working directory."""

import os
from pathlib import Path

from scfs.data.public import PUBLIC


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
