import importlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from scfs.data.paths import readable
from scfs.errors import UserError
from scfs.extras import check_extra
from scfs.runs.files import check_new, write_new

ROWS = 10_000  # per row group of a Parquet file, whose lists cannot hold more than 2^31 numbers in all


def check_out(out: Path, names: Iterable[str]) -> None:
    """Refuse an output file that features cannot be written to."""
    if out.suffix not in (".npy", ".parquet"):
        raise UserError(f"Cannot write features to {out}; name it .npy or .parquet, or give a folder without a suffix.")
    check_new(out)
    if out.suffix == ".parquet":
        pyarrow_for(out)
        return
    check_new(_names_file(out))
    for name in names:
        if "\n" in name or "\r" in name:
            raise UserError(
                f"Image name {name!r} has a line break, which a list cannot hold; rename it or use .parquet."
            )


def write_features(out: Path, names: Sequence[str], features: Tensor) -> None:
    """Write names and features (images, C) to new files, completely or not at all."""
    values = features.numpy()
    if out.suffix == ".parquet":
        write_new(out, lambda file: _write_parquet(file, names, values, pyarrow_for(out)))
        return
    lines = "".join(f"{name}\n" for name in names)
    write_new(_names_file(out), lambda file: file.write(os.fsencode(lines)))
    try:
        write_new(out, lambda file: np.save(file, values))
    except UserError:
        _names_file(out).unlink()
        raise


def _write_parquet(file: Any, names: Sequence[str], values: np.ndarray[Any, Any], pyarrow: Any) -> None:
    schema = pyarrow.schema([("path", pyarrow.string()), ("feature", pyarrow.list_(pyarrow.float32()))])
    with importlib.import_module("pyarrow.parquet").ParquetWriter(file, schema) as writer:
        for first in range(0, len(names), ROWS):
            rows = values[first : first + ROWS]
            offsets = pyarrow.array(np.arange(len(rows) + 1, dtype=np.int32) * rows.shape[1])
            lists = pyarrow.ListArray.from_arrays(offsets, pyarrow.array(rows.reshape(-1)))
            paths = pyarrow.array([readable(name) for name in names[first : first + ROWS]])
            writer.write_table(pyarrow.table([paths, lists], schema=schema))


def pyarrow_for(out: Path) -> Any:
    """The module pyarrow; a `UserError` if it is missing."""
    check_extra("parquet", f"Writing {out}")
    return importlib.import_module("pyarrow")


def _names_file(out: Path) -> Path:
    return out.with_suffix(".txt")
