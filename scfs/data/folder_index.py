"""The images below a folder. Large folders are listed once; later, only what changed is listed again."""

import os
import time
from bisect import bisect
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scfs.data.cache import Arrays, load_arrays, save_arrays
from scfs.data.decode import SUFFIXES
from scfs.data.paths import Files, Names
from scfs.data.run_folders import MARKS, is_run
from scfs.errors import UserError

MIN_CACHED = 10_000  # files; fewer are listed in no time
SETTLED_NS = 2_000_000_000  # a folder that changed more recently may change again at the same time stamp
ENDINGS = tuple(suffix.encode() for suffix in SUFFIXES)
ARRAYS = {"folders", "folder_ends", "stamps", "folder_of", "names", "name_ends"}

Stamp = tuple[int, int, int]  # of a folder: change times and inode. Adding, removing and renaming files change it
UNSETTLED: Stamp = (0, 0, 0)


class Listing(NamedTuple):
    """What one folder holds, without its subfolders' contents; a run folder counts as empty."""

    stamp: Stamp
    files: list[bytes]  # images only, sorted
    folders: list[bytes]


def index_folder(root: str, *, min_cached: int = MIN_CACHED) -> Files:
    """Every image below a folder, in order of path. Links to folders are followed.

    Hidden names are skipped, and so are run folders, unless `root` is one.
    """
    key = ("folder", os.path.abspath(root), *SUFFIXES)  # noqa: PTH100 - a path need not be UTF-8
    cached = load_arrays(*key)
    if cached is not None and cached.keys() != ARRAYS:
        cached = None
    if cached is not None and _unchanged(root, cached):
        return _files(root, cached)
    arrays = _packed(_list_below(os.fsencode(root), {} if cached is None else _listings(cached)))
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


def _list_below(root: bytes, known: dict[bytes, Listing]) -> dict[bytes, Listing]:
    """The listings of a folder and of all below it, reusing those that are still valid.

    Links to folders come last, and one that leads to a folder that has been listed is not followed: folders that link
    to each other would have no end. A loop, because folders may be nested more deeply than Python allows calls to be.
    """
    listings: dict[bytes, Listing] = {}
    seen, pending, links = set[tuple[int, int]](), [(b"", False)], deque[bytes]()
    while pending or links:
        folder, linked = pending.pop() if pending else (links.popleft(), True)
        path = os.path.join(root, folder)  # noqa: PTH118
        try:
            if folder and not linked and os.path.islink(path):  # noqa: PTH114
                links.append(folder)
                continue
            stat = os.stat(path)  # noqa: PTH116
            if linked and (stat.st_dev, stat.st_ino) in seen:
                _unsettle(listings, folder)
                continue
            old = known.get(folder)
            listing = old if old is not None and old.stamp == _stamp(stat) else _list(path, stat, is_root=not folder)
        except OSError as error:
            raise UserError(f"Cannot list folder {os.fsdecode(path)}: {error.strerror}; repair or remove it.") from None
        seen.add((stat.st_dev, stat.st_ino))
        listings[folder] = listing
        pending += [(os.path.join(folder, name), linked) for name in reversed(listing.folders)]  # noqa: PTH118
    return listings


def _unsettle(listings: dict[bytes, Listing], folder: bytes) -> None:
    """List the parent of a folder that is left out again next time: the reason for it may be gone by then."""
    parent = folder.rpartition(b"/")[0]
    listings[parent] = listings[parent]._replace(stamp=UNSETTLED)


def _list(path: bytes, stat: os.stat_result, *, is_root: bool) -> Listing:
    settled = max(stat.st_mtime_ns, stat.st_ctime_ns) < time.time_ns() - SETTLED_NS
    files, folders, marks = [], [], set[str]()
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
            elif name in MARKS:
                marks.add(os.fsdecode(name))
    if is_run(marks) and not is_root:
        files, folders = [], []
    return Listing(_stamp(stat) if settled else UNSETTLED, sorted(files), sorted(folders))


def _packed(listings: dict[bytes, Listing]) -> Arrays:
    """Listings as arrays, files in order of path: those of a subfolder come where its name sorts."""
    index_of = {folder: i for i, folder in enumerate(listings)}
    runs = list(_runs(listings, index_of))
    folders, names = Names.of(list(listings)), Names.of([name for _, names in runs for name in names])
    return {
        "folders": folders.blob,
        "folder_ends": folders.ends,
        "stamps": np.array([listing.stamp for listing in listings.values()], np.int64),  # (folders, 3)
        "folder_of": np.repeat(_int32([i for i, _ in runs]), [len(names) for _, names in runs]),
        "names": names.blob,
        "name_ends": names.ends,
    }


def _runs(listings: dict[bytes, Listing], index_of: dict[bytes, int]) -> Iterator[tuple[int, list[bytes]]]:
    """Consecutive files of one folder, and the folder's index, in order of path."""
    open_folders = [(b"", iter(listings[b""].folders), 0)]  # each with the subfolders and the files that are left
    while open_folders:
        folder, inner, start = open_folders.pop()
        files = listings[folder].files
        name = next((name for name in inner if os.path.join(folder, name) in listings), None)  # noqa: PTH118
        stop = len(files) if name is None else bisect(files, name)
        yield index_of[folder], files[start:stop]
        if name is not None:
            below = os.path.join(folder, name)  # noqa: PTH118
            open_folders += [(folder, inner, stop), (below, iter(listings[below].folders), 0)]


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
    return {f: Listing(s, n, sorted(inner[f])) for f, s, n in zip(folders, stamps, files, strict=True)}


def _folders(cached: Arrays) -> Names:
    return Names(cached["folders"], cached["folder_ends"])


def _files(root: str, arrays: Arrays) -> Files:
    return Files(root, _folders(arrays), arrays["folder_of"], Names(arrays["names"], arrays["name_ends"]))


def _int32(values: list[int]) -> NDArray[np.int32]:
    return np.array(values, np.int32)
