"""The names by which folders and files tell train from val images."""

import contextlib
import os
from pathlib import Path
from typing import NamedTuple

from scfs.data.run_folders import holds_only_runs

TRAIN_WORDS = {"train", "training"}
VAL_WORDS = ({"val", "valid", "validation", "dev"}, {"test", "testing", "eval"})  # the first group found is used
SPLIT_WORDS = TRAIN_WORDS.union(*VAL_WORDS)


class Splits(NamedTuple):
    """The folders of the images of a folder."""

    train: Path  # the folder itself if it has no splits
    val: Path | None


def split_folders(root: Path) -> Splits:
    """The train folder in a folder and, beside it, the val folder, by their names in any case."""
    names: dict[str, str] = {}
    with contextlib.suppress(OSError):  # reported when the images are listed
        found = sorted(name for name in os.listdir(root) if name.lower() in SPLIT_WORDS)  # noqa: PTH208
        names = {name.lower(): name for name in found if (root / name).is_dir()}
    train = _first(names, TRAIN_WORDS)
    if train is None:
        return Splits(root, None)
    val = next((name for words in VAL_WORDS if (name := _first(names, words)) is not None), None)
    return Splits(root / train, None if val is None else root / val)


def unused_folders(root: Path) -> list[str]:
    """The folders beside the train folder that are not named like a split, so that nobody reads them."""
    if split_folders(root).train == root:
        return []
    names = [n for n in os.listdir(root) if not n.startswith(".") and n.lower() not in SPLIT_WORDS]  # noqa: PTH208
    return sorted(name for name in names if (root / name).is_dir() and not holds_only_runs(str(root / name)))


def _first(names: dict[str, str], words: set[str]) -> str | None:
    """The folder that is named by one of the words, the shortest first: "train" rather than "training"."""
    return next((names[word] for word in sorted(words, key=len) if word in names), None)
