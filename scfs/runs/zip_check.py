"""Check the parts of a zip file before they are read: torch neither compresses nor repeats those that it writes."""

import zipfile
from pathlib import Path

LOCAL_HEADER = 30  # bytes before the name and the content of a part


class BadParts(Exception):  # noqa: N818 - the file's fault
    """Why torch cannot have written a zip file."""


def damaged_part(path: Path) -> str | None:
    """The first part that fails its checksum; None if all are whole.

    Raises `BadParts` for a file that torch cannot have written: its parts may expand to any size.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            _check_parts(archive.infolist())
            return archive.testzip()
    except (BadParts, OSError, MemoryError):
        raise
    except Exception as error:  # zipfile raises many types for a damaged file
        raise BadParts(str(error) or type(error).__name__) from None


def _check_parts(parts: list[zipfile.ZipInfo]) -> None:
    names, end = set[str](), 0
    for part in sorted(parts, key=lambda part: part.header_offset):
        if part.compress_type != zipfile.ZIP_STORED or part.file_size != part.compress_size:
            raise BadParts(f"its part {part.filename} is compressed")
        if part.filename in names:
            raise BadParts(f"it has two parts {part.filename}")
        if part.header_offset < end:
            raise BadParts(f"its part {part.filename} overlaps another")
        names.add(part.filename)
        end = part.header_offset + LOCAL_HEADER + part.file_size
