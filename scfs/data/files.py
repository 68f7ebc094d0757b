import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from scfs.data.counted import counted
from scfs.data.decode import MAX_PIXELS, SUFFIXES, decode
from scfs.data.folder_index import index_folder
from scfs.data.folder_walk import BROKEN_LINK, NO_SUFFIX, other_suffixes
from scfs.data.paths import Files, Names
from scfs.data.source_repr import SourceRepr
from scfs.errors import UserError

Labels = NDArray[np.int32]
NO_LABELS: Labels = np.empty(0, np.int32)


class FileSource(SourceRepr):
    """Image files, with labels if `classes` is not empty."""

    def __init__(self, files: Files, labels: Labels, classes: tuple[str, ...], *, max_pixels: int = MAX_PIXELS):
        self.files, self.labels, self.classes, self.max_pixels = files, labels, classes, max_pixels

    def __len__(self) -> int:
        return len(self.files.names)

    def image(self, index: int) -> Image.Image:
        """The decoded file."""
        return decode(self.files.path(index), max_pixels=self.max_pixels)

    def label(self, index: int) -> int:
        """The file's class, from its folder or its list."""
        return int(self.labels[index])

    def name(self, index: int) -> str:
        """The file's path."""
        return self.files.path(index)


def read_folder(root: Path, *, max_pixels: int = MAX_PIXELS) -> FileSource:
    """Every image below a folder. If all of them are in subfolders, those are the classes."""
    if not root.is_dir():
        raise UserError(f"No folder at {root}; give a folder of images, another data source or 'scenes'.")
    files = index_folder(str(root))
    if not len(files.names):
        raise UserError(f"No images under {root} (looked for {', '.join(SUFFIXES)}){_other_files(root)}.")
    tops = [folder.partition(b"/")[0] for folder in files.folders]  # the class folder of every folder
    used = {tops[i] for i in np.unique(files.folder_of).tolist()}
    if b"" in used:  # an image in the folder itself
        return FileSource(files, NO_LABELS, (), max_pixels=max_pixels)
    class_index = {name: i for i, name in enumerate(sorted(used))}
    labels = np.array([class_index.get(top, -1) for top in tops], np.int32)[files.folder_of]
    return FileSource(files, labels, tuple(map(os.fsdecode, class_index)), max_pixels=max_pixels)


def _other_files(root: Path) -> str:
    """What to do about a folder of broken links, or of other files, such as .heic; empty if it has none."""
    kinds = other_suffixes(root)
    if broken := kinds.pop(BROKEN_LINK, 0):
        return f"; it has {counted(broken, 'broken link')}"
    del kinds[NO_SUFFIX]
    return "".join(f"; convert its {counted(n, f'{kind} file')} to one of these" for kind, n in kinds.most_common(1))


def read_file(path: Path, *, max_pixels: int = MAX_PIXELS) -> FileSource:
    """A single image."""
    files = Files("", Names.of([b""]), np.zeros(1, np.int32), Names.of([os.fsencode(path)]))
    return FileSource(files, NO_LABELS, (), max_pixels=max_pixels)
