import importlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from scfs.data.archives import number_classes, without_hidden_labels
from scfs.data.decode import MAX_PIXELS, Fault, Unreadable, decode
from scfs.data.files import Labels
from scfs.data.source_repr import SourceRepr
from scfs.errors import UserError
from scfs.extras import check_extra
from scfs.regular_file import check_regular

PREFERRED_NAMES = ("image", "img")
BATCH = 16  # rows that are read at a time
# Encoded images hardly compress: a column that expands by more than this holds something else.
MAX_EXPANSION, MIN_LIMIT = 8, 2**28
MIN_ROWS, MIN_ROW_BYTES = (
    1_000_000,
    8,
)  # rows that a file of any size may have; bytes in the file of each row above that


class TooLarge(str):
    """Why a row group is not read."""


class Columns(NamedTuple):
    """Where a parquet file has its images and labels."""

    image: str  # a leaf: `image.bytes` of a struct, or the column itself
    label: str | None
    classes: tuple[str, ...]  # as Hugging Face's metadata names them


class Index(NamedTuple):
    """Row groups of some parquet files, one after the other, and the class numbers of all rows."""

    file_of: NDArray[np.int32]
    group_of: NDArray[np.int32]
    ends: NDArray[np.int64]  # rows up to the end of each group
    numbers: NDArray[np.int64]


class ParquetSource(SourceRepr):
    """Images in parquet files as Hugging Face writes them; whole row groups are read, and the last ones cached."""

    def __init__(
        self,
        paths: Sequence[str],
        index: Index,
        column: str,
        labels: Labels,
        classes: tuple[str, ...],
        *,
        max_pixels: int,
    ):
        self.paths, self.index, self.column = tuple(paths), index, column
        self.labels, self.classes, self.max_pixels = labels, classes, max_pixels

    def __len__(self) -> int:
        return int(self.index.ends[-1])

    def image(self, index: int) -> Image.Image:
        """The decoded bytes of a row."""
        group, row = self._locate(index)
        path, name = self.paths[self.index.file_of[group]], self.name(index)
        try:
            rows = _row_group(path, self.column, int(self.index.group_of[group]), os.getpid())
            value = rows if isinstance(rows, TooLarge) else rows[row].as_py()
        except Exception as error:  # Arrow's exceptions and the system's
            raise Unreadable(name, str(error).partition("\n")[0]) from None
        if isinstance(value, TooLarge):
            raise Unreadable(name, str(value), Fault.TOO_LARGE)
        data = value["bytes"] if isinstance(value, dict) else value
        if not isinstance(data, bytes):
            raise Unreadable(name, "the row holds no bytes")
        return decode(data, name=name, max_pixels=self.max_pixels)

    def label(self, index: int) -> int:
        """The row's class."""
        return int(self.labels[index])

    def name(self, index: int) -> str:
        """The file's path, then the row's number in it."""
        group, row = self._locate(index)
        first = int(np.searchsorted(self.index.file_of, self.index.file_of[group]))
        before = int(self.index.ends[first - 1]) if first else 0
        start = int(self.index.ends[group - 1]) if group else 0
        return f"{self.paths[self.index.file_of[group]]}/{start + row - before}"

    def _locate(self, index: int) -> tuple[int, int]:
        group = int(np.searchsorted(self.index.ends, index, side="right"))
        return group, index - (int(self.index.ends[group - 1]) if group else 0)


def open_parquet(
    train: Sequence[str], val: Sequence[str] = (), *, max_pixels: int = MAX_PIXELS
) -> tuple[ParquetSource, ParquetSource | None]:
    """The images of train and val files, with common classes."""
    with _sound(train[0]):
        columns = _columns(train[0], _open(train[0]).schema_arrow)
    found = [(paths, _indexed(paths, columns)) for paths in (train, val) if paths]
    parts = without_hidden_labels(found, [index.numbers for _, index in found])
    classes, labels = number_classes([index.numbers for _, index in parts], columns.classes)
    sources = [
        ParquetSource(*part, columns.image, own, classes, max_pixels=max_pixels)
        for part, own in zip(parts, labels, strict=True)
    ]
    return sources[0], sources[1] if len(sources) > 1 else None


def _arrow(module: str) -> Any:
    check_extra("parquet", "Reading parquet files")
    return importlib.import_module(module)


@contextmanager
def _sound(path: str) -> Iterator[None]:
    """Within it, whatever goes wrong is the fault of the file: Arrow raises many types for a damaged one."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        reason = (str(error) or type(error).__name__).partition("\n")[0].rstrip(".")
        raise UserError(f"Cannot read parquet file {path}: {reason}; copy or download it again.") from None


def _open(path: str) -> Any:
    reader = _arrow("pyarrow.parquet")
    with _sound(path):
        check_regular(path)
        return reader.ParquetFile(path, memory_map=True)


# The process id is part of the key: a forked process opens its own files.
@lru_cache(maxsize=8)
def _cached_file(path: str, pid: int) -> Any:  # noqa: ARG001
    return _open(path)


@lru_cache(maxsize=2)
def _row_group(path: str, column: str, group: int, pid: int) -> Any:
    """The images of a row group, or `TooLarge`: a file has equal images once, and a few kilobytes may hold gigabytes.

    They are read in batches, so that no more than allowed is ever in memory.
    """
    file = _cached_file(path, pid)
    chunk = _chunk(file.metadata.row_group(group), column)
    most = max(MIN_LIMIT, MAX_EXPANSION * min(chunk.total_compressed_size, check_regular(path)))
    too_large = TooLarge(f"its row group expands to more than {most:,} bytes")
    if chunk.total_uncompressed_size > most:
        return too_large
    batches, size = [], 0
    for batch in file.iter_batches(BATCH, row_groups=[group], columns=[column], use_threads=False):
        batches.append(batch)
        if (size := size + batch.nbytes) > most:
            return too_large
    return _arrow("pyarrow").chunked_array([batch.column(0) for batch in batches])


def _chunk(group: Any, column: str) -> Any:
    """What the metadata of a row group say about a column."""
    return next(each for i in range(group.num_columns) if (each := group.column(i)).path_in_schema == column)


def _indexed(paths: Sequence[str], columns: Columns) -> Index:
    files, groups, counts, numbers = list[int](), list[int](), list[int](), []
    for i, path in enumerate(paths):
        with _sound(path):
            rows, own = _index_one(path, columns)
        files += [i] * len(rows)
        groups += range(len(rows))
        counts += rows
        numbers.append(own)
    if not sum(counts):
        raise UserError(f"Parquet file {paths[0]} has no rows; give one with images.")
    ends = np.cumsum(np.array(counts, np.int64))
    return Index(np.array(files, np.int32), np.array(groups, np.int32), ends, np.concatenate(numbers))


def _index_one(path: str, columns: Columns) -> tuple[list[int], NDArray[np.int64]]:
    """The rows of each row group of a file, and the class numbers of all."""
    file = _open(path)
    if _columns(path, file.schema_arrow).image != columns.image:
        raise UserError(
            f"Parquet file {path} has no image column '{columns.image.partition('.')[0]}', which the others have."
        )
    metadata = file.metadata
    counts = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    if min(counts, default=0) < 0 or sum(counts) != metadata.num_rows:
        raise ValueError("its numbers of rows contradict each other")
    if metadata.num_rows > max(MIN_ROWS, check_regular(path) // MIN_ROW_BYTES):
        raise ValueError(f"its {metadata.num_rows} rows cannot all hold images")
    _refuse_nulls(path, metadata, columns.image)
    return counts, _numbers(file, columns.label)


def _refuse_nulls(path: str, metadata: Any, image: str) -> None:
    """Refuse a file without a single image; some tools store only the images' paths."""
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    chunks = [group.column(i) for group in groups for i in range(group.num_columns)]
    statistics = [chunk.statistics for chunk in chunks if chunk.path_in_schema == image]
    nulls = sum(each.null_count for each in statistics if each is not None and each.has_null_count)
    if metadata.num_rows and nulls == metadata.num_rows:
        raise UserError(
            f"Parquet file {path} has no images: every row of its column '{image}' is null; save it with the images "
            "embedded."
        )


def _numbers(file: Any, label: str | None) -> NDArray[np.int64]:
    """The class numbers of a file's rows, -1 where there is none."""
    if label is None or label not in file.schema_arrow.names:
        return np.full(file.metadata.num_rows, -1, np.int64)
    column = file.read(columns=[label], use_threads=False).column(0)
    if len(column) != file.metadata.num_rows:
        raise ValueError("its labels are not as many as its rows")
    return np.asarray(column.cast("int64").fill_null(-1).to_numpy(), np.int64)


def _columns(path: str, schema: Any) -> Columns:
    """The columns of images and labels, by name, by Hugging Face's metadata and by type."""
    features = _features(schema)
    images = [leaf for name in schema.names if (leaf := _image_leaf(schema.field(name)))]
    if not images:
        raise UserError(
            f"Parquet file {path} has no column of images (it has {', '.join(schema.names)}); give one with bytes, or "
            "with structs that have bytes."
        )
    image = min(images, key=lambda leaf: _rank(leaf.partition(".")[0], features))
    numbered = [name for name in schema.names if str(schema.field(name).type).startswith(("int", "uint"))]
    label = next((name for name in numbered if name == "label"), None) or next(
        (name for name in numbered if features.get(name, {}).get("_type") == "ClassLabel"), None
    )
    names = features.get(label or "", {}).get("names")
    return Columns(image, label, tuple(map(str, names)) if isinstance(names, list) else ())


def _rank(name: str, features: dict[str, Any]) -> tuple[bool, ...]:
    return (*(name != preferred for preferred in PREFERRED_NAMES), features.get(name, {}).get("_type") != "Image")


def _image_leaf(field: Any) -> str | None:
    types = _arrow("pyarrow.types")
    if types.is_struct(field.type):
        inner = {field.type.field(i).name: field.type.field(i).type for i in range(field.type.num_fields)}
        return f"{field.name}.bytes" if "bytes" in inner and _is_binary(inner["bytes"]) else None
    return field.name if _is_binary(field.type) else None


def _is_binary(kind: Any) -> bool:
    types = _arrow("pyarrow.types")
    return bool(types.is_binary(kind) or types.is_large_binary(kind))


def _features(schema: Any) -> dict[str, Any]:
    """The columns' features in the metadata of Hugging Face's `datasets`."""
    try:
        features = json.loads(schema.metadata[b"huggingface"])["info"]["features"]
        return {name: value for name, value in features.items() if isinstance(value, dict)}
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        return {}
