"""The images below a folder. Large folders are listed once; later, only what changed is listed again."""

import os
import time
from bisect import bisect
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scfs.data.cache import Arrays, load_arrays, save_arrays
from scfs.data.decode import SUFFIXES
from scfs.data.paths import Files, Names
from scfs.errors import UserError

MIN_CACHED = 10_000  # files; fewer are listed in no time
SETTLED_NS = 2_000_000_000  # a folder that changed more recently may change again at the same time stamp
ENDINGS = tuple(suffix.encode() for suffix in SUFFIXES)
ARRAYS = {"folders", "folder_ends", "stamps", "folder_of", "names", "name_ends"}

Stamp = tuple[int, int, int]  # of a folder: change times and inode. Adding, removing and renaming files change it
UNSETTLED: Stamp = (0, 0, 0)


class Listing(NamedTuple):
    """What one folder holds, without its subfolders' contents."""

    stamp: Stamp
    files: list[bytes]  # images only, sorted
    folders: list[bytes]


def index_folder(root: str, *, min_cached: int = MIN_CACHED) -> Files:
    """Every image below a folder, in order of path. Links to folders are followed; hidden names are skipped."""
    key = ("folder", os.path.abspath(root), *SUFFIXES)  # noqa: PTH100 - a path need not be UTF-8
    cached = load_arrays(*key)
    if cached is not None and cached.keys() != ARRAYS:
        cached = None
    if cached is not None and _unchanged(root, cached):
        return _files(root, cached)
    listings: dict[bytes, Listing] = {}
    _list_below(os.fsencode(root), b"", (), {} if cached is None else _listings(cached), listings)
    arrays = _packed(listings)
    if len(arrays["folder_of"]) >= min_cached:
        save_arrays(*key, arrays=arrays)
    return _files(root, arrays)


def _unchanged(root: str, cached: Arrays) -> bool:
    top = os.fsencode(root)
    stamps = cached["stamps"].tolist()
    try:
        return all(
            tuple(stamp) == _stamp(os.stat(os.path.join(top, folder)))  # noqa: PTH116, PTH118 - for speed
            for folder, stamp in zip(_folders(cached), stamps, strict=True)
        )
    except OSError:
        return False


def _stamp(stat: os.stat_result) -> Stamp:
    return stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino & 0x7FFF_FFFF_FFFF_FFFF


def _list_below(
    root: bytes,
    folder: bytes,
    above: tuple[tuple[int, int], ...],
    known: dict[bytes, Listing],
    listings: dict[bytes, Listing],
) -> None:
    """Add the listings of a folder and of all below it, reusing those that are still valid."""
    path = os.path.join(root, folder)  # noqa: PTH118
    try:
        stat = os.stat(path)  # noqa: PTH116
        if (stat.st_dev, stat.st_ino) in above:  # a link to a parent folder
            return
        old = known.get(folder)
        listing = old if old is not None and old.stamp == _stamp(stat) else _list(path, stat)
    except OSError as error:
        raise UserError(f"Cannot list folder {os.fsdecode(path)}: {error.strerror}; repair or remove it.") from None
    listings[folder] = listing
    for name in listing.folders:
        _list_below(root, os.path.join(folder, name), (*above, (stat.st_dev, stat.st_ino)), known, listings)  # noqa: PTH118


def _list(path: bytes, stat: os.stat_result) -> Listing:
    settled = max(stat.st_mtime_ns, stat.st_ctime_ns) < time.time_ns() - SETTLED_NS
    files, folders = [], []
    with os.scandir(path) as entries:
        for entry in entries:
            name = entry.name
            if name.startswith(b".") or name == b"lost+found":
                continue
            if entry.is_dir():
                folders.append(name)
            elif name.lower().endswith(ENDINGS):
                if entry.is_file():
                    files.append(name)
                else:
                    settled = False  # a broken link, whose target may appear without changing this folder
    return Listing(_stamp(stat) if settled else UNSETTLED, sorted(files), sorted(folders))


def _packed(listings: dict[bytes, Listing]) -> Arrays:
    """Listings as arrays, files in order of path: those of a subfolder come where its name sorts."""
    index_of = {folder: i for i, folder in enumerate(listings)}
    runs: list[tuple[int, list[bytes]]] = []  # consecutive files of one folder

    def add(folder: bytes) -> None:
        listing, start = listings[folder], 0
        for name in listing.folders:
            if (inner := os.path.join(folder, name)) in listings:  # noqa: PTH118
                stop = bisect(listing.files, name)
                runs.append((index_of[folder], listing.files[start:stop]))
                add(inner)
                start = stop
        runs.append((index_of[folder], listing.files[start:]))

    add(b"")
    folders, names = Names.of(list(listings)), Names.of([name for _, names in runs for name in names])
    return {
        "folders": folders.blob,
        "folder_ends": folders.ends,
        "stamps": np.array([listing.stamp for listing in listings.values()], np.int64),  # (folders, 3)
        "folder_of": np.repeat(_int32([i for i, _ in runs]), [len(names) for _, names in runs]),
        "names": names.blob,
        "name_ends": names.ends,
    }


def _listings(cached: Arrays) -> dict[bytes, Listing]:
    """The reverse of `_packed`."""
    folders = list(_folders(cached))
    names = Names(cached["names"], cached["name_ends"])[:]
    files: list[list[bytes]] = [[] for _ in folders]
    for i, name in zip(cached["folder_of"].tolist(), names, strict=True):
        files[i].append(name)
    inner: dict[bytes, list[bytes]] = {folder: [] for folder in folders}
    for folder in folders[1:]:
        above, _, name = folder.rpartition(b"/")
        inner[above].append(name)
    stamps: list[Stamp] = [(a, b, c) for a, b, c in cached["stamps"].tolist()]
    return {f: Listing(s, n, inner[f]) for f, s, n in zip(folders, stamps, files, strict=True)}


def _folders(cached: Arrays) -> Names:
    return Names(cached["folders"], cached["folder_ends"])


def _files(root: str, arrays: Arrays) -> Files:
    return Files(root, _folders(arrays), arrays["folder_of"], Names(arrays["names"], arrays["name_ends"]))


def _int32(values: list[int]) -> NDArray[np.int32]:
    return np.array(values, np.int32)
