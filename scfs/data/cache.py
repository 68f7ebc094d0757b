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

FORMAT = 2  # of the cached arrays; raise it when they, or what is listed, change


def cache_folder() -> Path:
    """Where indexes are cached: $SCFS_CACHE, else the user's cache folder."""
    if own := os.environ.get("SCFS_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "scfs"


def load_arrays(*key: str) -> Arrays | None:
    """The arrays last saved under a key; None if there are none or they are damaged."""
    try:
        with _path(key).open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}  # reading checks the checksums
    except Exception:  # a cache must never stop a run
        return None


def save_arrays(*key: str, arrays: Arrays) -> None:
    """Save arrays under a key, if possible; readers see the complete old file or the complete new one."""
    with contextlib.suppress(OSError, RuntimeError):  # RuntimeError: the user has no home folder
        path = _path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, lambda file: np.savez(file, **dict[str, Any](arrays)))


def _path(key: tuple[str, ...]) -> Path:
    text = "\0".join((str(FORMAT), *key))
    return cache_folder() / f"index-{hashlib.sha256(os.fsencode(text)).hexdigest()[:32]}.npz"
