import os
import time
from array import array
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from PIL import Image

from scfs.data.archives import number_classes, without_hidden_labels
from scfs.data.cache import Arrays, load_arrays, save_arrays
from scfs.data.decode import MAX_PIXELS, SUFFIXES, Fault, Unreadable, decode, reason_of
from scfs.data.files import Labels
from scfs.data.folder_index import MIN_CACHED, SETTLED_NS
from scfs.data.image_limits import max_encoded
from scfs.data.paths import Names
from scfs.data.source_repr import SourceRepr
from scfs.data.tar_members import Member, tar_members
from scfs.errors import UserError
from scfs.regular_file import open_regular

ENDINGS = tuple(suffix[1:].encode() for suffix in SUFFIXES)
MAX_DIGITS = 18  # of a class, which 64 bits hold
ARRAYS = {"stamps", "shard_of", "offsets", "sizes", "numbers", "names", "name_ends"}


class Sample(NamedTuple):
    """An image of a shard and the number of its class, -1 if it has none."""

    image: Member
    number: int


class ShardSource(SourceRepr):
    """Images of WebDataset tar shards, with random access; labels are the numbers in `.cls` members."""

    def __init__(
        self, paths: Sequence[str], index: Arrays, labels: Labels, classes: tuple[str, ...], *, max_pixels: int
    ):
        self.paths, self.labels, self.classes, self.max_pixels = tuple(paths), labels, classes, max_pixels
        self.shard_of, self.offsets, self.sizes = index["shard_of"], index["offsets"], index["sizes"]
        self.names = Names(index["names"], index["name_ends"])

    def __len__(self) -> int:
        return len(self.offsets)

    def image(self, index: int) -> Image.Image:
        """The decoded member."""
        name, size = self.name(index), int(self.sizes[index])
        if size > max_encoded(self.max_pixels):
            raise Unreadable(name, f"it has more than {max_encoded(self.max_pixels):,} bytes", Fault.TOO_LARGE)
        try:
            # Opened for each image, as image files are: no handles to share between processes, to limit or to pickle.
            with open_regular(self.paths[self.shard_of[index]]) as file:
                data = os.pread(file.fileno(), size, int(self.offsets[index]))
        except OSError as error:
            raise Unreadable(name, reason_of(error)) from None
        if len(data) < size:
            raise Unreadable(name, "the shard is shorter than it was")
        return decode(data, name=name, max_pixels=self.max_pixels)

    def label(self, index: int) -> int:
        """The sample's class: the index of its number among all numbers."""
        return int(self.labels[index])

    def name(self, index: int) -> str:
        """The shard's path, then the member's."""
        return f"{self.paths[self.shard_of[index]]}/{os.fsdecode(self.names[index])}"


def open_shards(
    train: Sequence[str], val: Sequence[str] = (), *, max_pixels: int = MAX_PIXELS
) -> tuple[ShardSource, ShardSource | None]:
    """The images of train and val shards, with common classes."""
    found = [(paths, index_shards(paths)) for paths in (train, val) if paths]
    parts = without_hidden_labels(found, [index["numbers"] for _, index in found])
    classes, labels = number_classes([index["numbers"] for _, index in parts])
    sources = [ShardSource(*part, own, classes, max_pixels=max_pixels) for part, own in zip(parts, labels, strict=True)]
    return sources[0], sources[1] if len(sources) > 1 else None


def index_shards(paths: Sequence[str], *, min_cached: int = MIN_CACHED) -> Arrays:
    """The location of each image in the shards; cached for the next start if there are many."""
    key = ("shards", *map(os.path.abspath, paths), *SUFFIXES)
    try:
        stamps = np.array([_stamp(os.stat(path)) for path in paths], np.int64)  # noqa: PTH116 - for speed
    except OSError as error:
        raise UserError(f"Cannot read shard {error.filename}: {error.strerror}.") from None
    cached = load_arrays(*key)
    if cached is not None and cached.keys() == ARRAYS and np.array_equal(cached["stamps"], stamps):
        return cached
    settled = stamps[:, 1:3].max() < time.time_ns() - SETTLED_NS
    arrays = {"stamps": stamps, **_indexed(paths)}
    if settled and len(arrays["offsets"]) >= min_cached:
        save_arrays(*key, arrays=arrays)
    return arrays


def _stamp(stat: os.stat_result) -> tuple[int, int, int, int]:
    return stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino & 0x7FFF_FFFF_FFFF_FFFF


def _indexed(paths: Sequence[str]) -> Arrays:
    parts = [_index_one(path) for path in paths]
    arrays = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    if not len(arrays["offsets"]):
        others = f" or the other {len(paths) - 1} shards" if len(paths) > 1 else ""
        raise UserError(f"No images in {paths[0]}{others} (looked for members named *{', *'.join(SUFFIXES)}).")
    arrays["shard_of"] = np.repeat(np.arange(len(paths), dtype=np.int32), [len(part["offsets"]) for part in parts])
    arrays["name_ends"] = np.cumsum(arrays.pop("name_lengths"))
    return arrays


def _index_one(path: str) -> Arrays:
    # Grown number by number: a list of a million samples would take several times the memory of these.
    offsets, sizes, numbers, lengths, names = array("q"), array("q"), array("q"), array("q"), bytearray()
    try:
        with open_regular(path) as file:
            for image, number in _samples(path, file.fileno()):
                offsets.append(image.offset)
                sizes.append(image.size)
                numbers.append(number)
                lengths.append(len(image.name))
                names += image.name
    except OSError as error:
        raise UserError(f"Cannot read shard {path}: {error.strerror}.") from None
    columns = {"offsets": offsets, "sizes": sizes, "numbers": numbers, "name_lengths": lengths}
    return {"names": np.frombuffer(names, np.uint8), **{name: np.array(c, np.int64) for name, c in columns.items()}}


def _samples(path: str, file: int) -> Iterator[Sample]:
    """WebDataset's samples: consecutive members whose paths agree up to the first dot of the file name."""
    last, group = b"", dict[bytes, Member]()
    for member in tar_members(path, file):
        folder, slash, name = member.name.rpartition(b"/")
        stem, _, ending = name.partition(b".")
        if not stem or not ending:  # hidden, or without a suffix
            continue
        if (key := folder + slash + stem) != last:
            yield from _sample(file, group)
            last, group = key, {}
        group[ending.lower()] = member
    yield from _sample(file, group)


def _sample(file: int, group: dict[bytes, Member]) -> Iterator[Sample]:
    images = [ending for ending in group if ending.rpartition(b".")[2] in ENDINGS]
    if images:
        image = min(images, key=lambda ending: b"." in ending)  # `jpg` before `seg.png`
        yield Sample(group[image], _number(file, group[b"cls"]) if b"cls" in group else -1)


def _number(file: int, member: Member) -> int:
    text = os.pread(file, min(member.size, 20), member.offset).strip()
    return int(text) if text.isdigit() and member.size <= 20 and len(text) <= MAX_DIGITS else -1
