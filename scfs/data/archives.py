"""What tar shards and parquet files have in common: patterns of file names, splits by name, numbered classes."""

import contextlib
import glob
import logging
import os
import re
from collections.abc import Iterator, Sequence
from itertools import chain, islice, product, zip_longest
from math import prod
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from scfs.data.decode import SUFFIXES
from scfs.data.files import NO_LABELS, Labels
from scfs.data.run_folders import holds_only_runs
from scfs.data.splits import TRAIN_WORDS, VAL_WORDS
from scfs.errors import UserError

LOGGER = logging.getLogger("scfs.data")
Part = TypeVar("Part")
TAR, PARQUET = ".tar", ".parquet"
COMPRESSED = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst")
BRACES, SPAN = re.compile(r"\{([^{}]*)\}"), re.compile(r"([0-9]+)\.\.([0-9]+)")
MAX_FILES, MAX_DIGITS = 1_000_000, 50  # that a pattern may name; of a number in it
SUBFOLDERS = ("", "data", "train", "val", "valid", "validation", "test")  # of a folder, that may hold archives


def is_archive(name: str) -> bool:
    """Whether a name ends like that of a shard or a parquet file."""
    return name.lower().endswith((TAR, PARQUET, *COMPRESSED))


def is_pattern(name: str) -> bool:
    """Whether a name is a pattern for several files."""
    return glob.has_magic(name) or re.search(r"\{.*\}", name) is not None


def expand(pattern: str) -> list[str]:
    """The files of a pattern: braces ({000..009}, {a,b}) are expanded, wildcards match existing files."""
    paths: list[str] = []
    plain = os.path.expanduser(pattern)  # noqa: PTH111 - a pattern is not a path
    for name in [glob.escape(plain)] if Path(plain).is_file() else _expand_braces(plain):
        found = glob.iglob(name, recursive=True) if glob.has_magic(name) else [name]  # noqa: PTH207
        paths += sorted(islice(found, MAX_FILES + 1 - len(paths)))
        if len(paths) > MAX_FILES:
            raise UserError(f"{_shortened(pattern)} names more than {MAX_FILES:,} files; give a narrower pattern.")
    if not paths:
        raise UserError(f"No file matches {pattern}; check the pattern.")
    if absent := [path for path in paths if not Path(path).is_file()]:
        others = f", nor at {len(absent) - 1} more of the {len(paths)} that {pattern} names" if len(absent) > 1 else ""
        raise UserError(f"No file at {absent[0]}{others}; check the path.")
    return paths


def archives_in(root: Path) -> list[str]:
    """The shards or parquet files in a folder; empty for a folder of images."""
    found = [path for name in SUBFOLDERS if (root / name).is_dir() for path in _archives_of(root / name)]
    if len({Path(path).suffix == PARQUET for path in found}) > 1:
        raise UserError(f"{root} holds both shards and parquet files; name one kind, such as '{root}/*{TAR}'.")
    return sorted(found)


def split_files(paths: Sequence[str]) -> tuple[list[str], list[str]]:
    """(train, val) files by the words in their names; all are train files if the names do not tell them apart."""
    base = Path(os.path.commonpath([Path(path).absolute().parent for path in paths]))
    words = {path: _words(Path(path).absolute().relative_to(base)) for path in paths}
    held = [[p for p in paths if words[p] & kind and not words[p] & TRAIN_WORDS] for kind in VAL_WORDS]
    not_train = {*held[0], *held[1]}
    train = [path for path in paths if path not in not_train]
    return (train, held[0] or held[1]) if train else (list(paths), [])


def without_hidden_labels(parts: Sequence[Part], numbers: Sequence[NDArray[np.int64]]) -> Sequence[Part]:
    """The (train, val) parts, without val if labels in it are hidden (negative) where train images have theirs.

    Hugging Face's test splits are such.
    """
    train, *val = numbers
    if val and len(train) and train.min() >= 0 and len(val[0]) and val[0].min() < 0:
        LOGGER.warning("Labels of the val images are hidden: evaluations take every fifth train image instead.")
        return parts[:1]
    return parts


def number_classes(
    parts: Sequence[NDArray[np.int64]], names: Sequence[str] = ()
) -> tuple[tuple[str, ...], list[Labels]]:
    """Classes and labels of sources with numbered classes; none if a label is missing (negative)."""
    numbers = np.concatenate(parts)
    if not len(numbers) or numbers.min() < 0:
        return (), [NO_LABELS for _ in parts]
    if numbers.max() < len(names):
        return tuple(names), [part.astype(np.int32) for part in parts]
    found, indices = np.unique(numbers, return_inverse=True)
    ends = np.cumsum([len(part) for part in parts])
    return tuple(map(str, found.tolist())), np.split(indices.astype(np.int32), ends[:-1])


def _expand_braces(pattern: str) -> list[str]:
    """Every name of a pattern, innermost braces first; a `UserError` if there are too many."""
    names = [pattern]
    while braces := next((found for name in names if (found := BRACES.findall(name))), None):
        if len(names) * prod(map(_num_choices, braces)) > MAX_FILES:
            raise UserError(f"{_shortened(pattern)} names more than {MAX_FILES:,} files; check what is in braces.")
        names = [each for name in names for each in _expand_innermost(name)]
    return names


def _expand_innermost(name: str) -> Iterator[str]:
    parts = BRACES.split(name)  # text, the inside of braces, text, ...
    for chosen in product(*map(_choices, parts[1::2])):
        yield "".join(chain.from_iterable(zip_longest(parts[::2], chosen, fillvalue="")))


def _num_choices(inside: str) -> int:
    if (span := SPAN.fullmatch(inside)) is None:
        return inside.count(",") + 1
    return max(0, int(span[2]) - int(span[1]) + 1) if max(map(len, span.groups())) <= MAX_DIGITS else MAX_FILES + 1


def _choices(inside: str) -> list[str]:
    if (span := SPAN.fullmatch(inside)) is None:
        return inside.split(",")
    first, last = span.groups()
    width = len(first) if first.startswith("0") or len(first) == len(last) else 0
    return [str(number).zfill(width) for number in range(int(first), int(last) + 1)]


def _shortened(pattern: str) -> str:
    return pattern if len(pattern) <= 200 else f"{pattern[:200]}..."


def _archives_of(folder: Path) -> list[str]:
    """Archives directly in a folder, unless it is a folder of images.

    Those beside subfolders are leftovers or features, except parquet files beside folders of more of them. Folders of
    runs do not count.
    """
    found, folders = [], []
    with contextlib.suppress(OSError), os.scandir(folder) as entries:  # reported when the images are listed
        for entry in entries:
            name = entry.name.lower()
            if name.endswith(SUFFIXES):
                return []
            if is_archive(name) and not name.startswith(".") and entry.is_file():
                found.append(entry.path)
            if entry.is_dir() and not name.startswith("."):
                folders.append(Path(entry.path))
    if not found:
        return []
    folders = [path for path in folders if not holds_only_runs(str(path))]
    if not all(path.name.lower() in SUBFOLDERS and _archives_of(path) for path in folders):
        return []
    return [path for path in found if path.lower().endswith(PARQUET) or not folders]


def _words(path: Path) -> set[str]:
    return set(re.split(r"[^a-z]+", str(path).lower()))
