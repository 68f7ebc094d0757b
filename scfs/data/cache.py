import contextlib
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scfs.runs.files import write_atomic

Arrays = Mapping[str, NDArray[Any]]

FORMAT = 1  # of what is kept; raise it when that changes


def cache_folder() -> Path:
    """Where indexes are kept: $SCFS_CACHE, else the user's cache folder."""
    if own := os.environ.get("SCFS_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "scfs"


def load_arrays(*key: str) -> Arrays | None:
    """What was last kept under a key; None if that is nothing, or damaged."""
    try:
        with _path(key).open("rb") as file, np.load(file, allow_pickle=False) as kept:
            return {name: kept[name] for name in kept.files}  # reading checks the checksums
    except Exception:  # a cache must never stop a run
        return None


def save_arrays(*key: str, arrays: Arrays) -> None:
    """Keep arrays under a key, if the disk lets us; readers see the old file or the new one, never a part."""
    with contextlib.suppress(OSError, RuntimeError):  # RuntimeError: a user without a home
        path = _path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, lambda file: np.savez(file, **dict[str, Any](arrays)))


def _path(key: tuple[str, ...]) -> Path:
    text = "\0".join((str(FORMAT), *key))
    return cache_folder() / f"index-{hashlib.sha256(os.fsencode(text)).hexdigest()[:32]}.npz"
