"""Smaller copies of image files, written by the workers of a loader."""

import shutil
from pathlib import Path
from typing import NamedTuple

from PIL import Image
from torch.utils.data import Dataset

from scfs.data.decode import Unreadable
from scfs.data.decode import decode as decode_image
from scfs.data.files import FileSource
from scfs.data.paths import readable
from scfs.data.unreadable import reading
from scfs.errors import UserError
from scfs.runs.files import write_atomic

JPEG = (".jpg", ".jpeg")
SPARE = 2  # a JPEG is decoded to at least this many times the side of its copy, which smooths what it cuts off


class Copied(NamedTuple):
    """What became of one image: resized, copied as it is, or neither."""

    resized: bool = False
    unreadable: str = ""  # why


class Copies(Dataset[Copied]):
    """Reading an item writes the copy of an image; `out` has the folders of `root`."""

    def __init__(self, source: FileSource, root: Path, out: Path, *, side: int, quality: int):
        self.source, self.root, self.out, self.side, self.quality = source, root, out, side, quality

    def __len__(self) -> int:
        return len(self.source)

    def paths(self, index: int) -> tuple[Path, Path]:
        """Where an image goes if it is copied as it is, and if it is resized: then it is a JPEG."""
        image = Path(self.source.name(index))
        same, as_jpeg = self.out / image.relative_to(self.root), image.with_name(f"{image.name}.jpg")
        if same.suffix.lower() in JPEG:
            return same, same
        return same, same.with_name(f"{same.name}.resized.jpg" if as_jpeg.exists() else as_jpeg.name)

    def is_done(self, index: int) -> bool:
        """Whether an image has its copy."""
        return any(path.exists() for path in self.paths(index))

    def __getitem__(self, index: int) -> Copied:
        name, (same, resized) = self.source.name(index), self.paths(index)
        try:
            with reading(self.source, index):
                image = decode_image(name, max_pixels=self.source.max_pixels, min_side=SPARE * self.side)
        except Unreadable as error:
            return Copied(unreadable=str(error))
        try:
            same.parent.mkdir(parents=True, exist_ok=True)
            if min(image.size) <= self.side:
                with Path(name).open("rb") as file:
                    write_atomic(same, lambda copy: shutil.copyfileobj(file, copy))
                return Copied()
            small = reduced(image, self.side)
            write_atomic(resized, lambda copy: small.save(copy, "JPEG", quality=self.quality, subsampling=0))
        except OSError as error:  # of a worker, only a `UserError` keeps its sentence
            raise UserError(f"Cannot copy {readable(name)} to {self.out}: {error.strerror}.") from None
        return Copied(resized=True)


def reduced(image: Image.Image, side: int) -> Image.Image:
    """The image with a shorter side of so many pixels."""
    scale = side / min(image.size)
    width, height = (max(side, round(length * scale)) for length in image.size)
    return image.resize((width, height), Image.Resampling.BICUBIC)
