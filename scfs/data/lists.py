"""Text files that list images or classes, one per line; blank lines and # comments are skipped."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from scfs.data.decode import MAX_PIXELS
from scfs.data.files import NO_LABELS, FileSource, Labels
from scfs.data.paths import Files, Names
from scfs.errors import UserError
from scfs.regular_file import read_regular

MAX_BYTES = 2**32  # of a list; tens of millions of paths
MAX_DIGITS = 18  # of classes that are sorted as numbers


def read_list(path: Path, *, max_pixels: int = MAX_PIXELS) -> FileSource:
    """The images of a list, in its order: paths relative to its folder, each with a label after a tab or none."""
    paths, words = zip(*_split_lines(path), strict=True)
    files = list_files(str(path.parent), paths, origin=str(path))
    labels, classes = _labels(path, paths, words)
    return FileSource(files, labels, classes, max_pixels=max_pixels)


def read_names(path: Path) -> list[str]:
    """The names of classes or images in a list, each once; text after a tab is a comment."""
    names = [os.fsdecode(name) for name, _ in _split_lines(path)]
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise UserError(f"List {path} names '{name}' twice; name each once.")
        seen.add(name)
    return names


def list_files(root: str, paths: Sequence[bytes], *, origin: str) -> Files:
    """Paths below a root as `Files`; all must exist. `origin` is where they are listed, for the error."""
    folder_index: dict[bytes, int] = {}
    folder_of, names = np.empty(len(paths), np.int32), []
    for i, path in enumerate(paths):
        folder, name = os.path.split(path)
        folder_of[i] = folder_index.setdefault(folder, len(folder_index))
        names.append(name)
    files = Files(root, Names.of(list(folder_index)), folder_of, Names.of(names))
    # One listing per folder: on a network drive, checking a million files one by one would take minutes.
    present = [_entries(root, folder) for folder in folder_index]
    absent = [i for i, folder in enumerate(folder_of.tolist()) if names[i] not in present[folder]]
    if absent:
        raise UserError(
            f"{len(absent)} of the {len(paths)} images that {origin} names do not exist, the first "
            f"{files.path(absent[0])}; restore them or remove them from the list."
        )
    return files


def _split_lines(path: Path) -> list[tuple[bytes, bytes]]:
    """The text before and after the tab of every line that is not blank or a comment."""
    try:
        text = read_regular(path, limit=MAX_BYTES).removeprefix(b"\xef\xbb\xbf")
    except OSError as error:
        raise UserError(f"Cannot read list {path}: {error.strerror}.") from None
    if b"\0" in text:
        raise UserError(f"{path} is not a text file; a list has one path or class per line.")
    lines = [line.rstrip(b"\r") for line in text.split(b"\n") if line.strip() and not line.startswith(b"#")]
    if not lines:
        raise UserError(f"List {path} is empty; write one path or class per line.")
    return [(before.strip(), after.strip()) for before, _, after in (line.partition(b"\t") for line in lines)]


def _labels(path: Path, paths: Sequence[bytes], words: Sequence[bytes]) -> tuple[Labels, tuple[str, ...]]:
    if not any(words):
        return NO_LABELS, ()
    if not all(words):
        first = os.fsdecode(paths[words.index(b"")])
        raise UserError(f"List {path} labels some images but not {first}; label all of them or none.")
    found = set(words)
    order = (
        sorted(found, key=int) if all(word.isdigit() and len(word) <= MAX_DIGITS for word in found) else sorted(found)
    )
    class_index = {word: i for i, word in enumerate(order)}
    return np.array([class_index[word] for word in words], np.int32), tuple(map(os.fsdecode, order))


def _entries(root: str, folder: bytes) -> set[bytes]:
    try:
        return set(os.listdir(os.path.join(os.fsencode(root), folder)))  # noqa: PTH118, PTH208
    except OSError:
        return set()
