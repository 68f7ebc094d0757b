"""Locate the members of a tar file without reading them, in a quarter of the time that Python's tarfile takes."""

import os
import re
from collections.abc import Iterator
from typing import NamedTuple

from scfs.errors import UserError

BLOCK = 512
FILE_TYPES = (b"0", b"\0", b"7")
OCTAL, DECIMAL, PAX_LENGTH = re.compile(rb"[0-7]+"), re.compile(rb"[0-9]{1,18}"), re.compile(rb"([0-9]{1,9}) ")
MAX_HEADER = 2**20  # bytes of a long name or of other records before a member
LONG_NAME, PAX, PAX_GLOBAL = b"L", b"x", b"g"
COMPRESSED_STARTS = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd")  # gzip, bzip2, xz, zstandard


class Member(NamedTuple):
    """A regular file in a tar file."""

    name: bytes
    offset: int
    size: int


def tar_members(path: str, file: int) -> Iterator[Member]:
    """The regular files of an open tar file, in order; a `UserError` unless it is complete."""
    length, offset, extra = os.fstat(file).st_size, 0, dict[str, bytes]()
    while any(header := os.pread(file, BLOCK, offset)):
        _check(path, header, offset)
        size = int(extra["size"]) if "size" in extra else _number(path, header[124:136])
        start, kind = offset + BLOCK, header[156:157]
        if start + size > length:
            raise _cut_short(path)
        if kind in FILE_TYPES:
            yield Member(extra.get("path") or _name(header), start, size)
        if kind in (LONG_NAME, PAX) and size > MAX_HEADER:
            raise _damaged(path)
        if kind == LONG_NAME:
            extra = {"path": os.pread(file, size, start).rstrip(b"\0")}
        elif kind == PAX:
            extra = _pax(path, os.pread(file, size, start))
        elif kind != PAX_GLOBAL:
            extra = {}
        offset = start + -(-size // BLOCK) * BLOCK
    if len(header) < BLOCK:  # a tar file ends with blocks of zeros
        raise _cut_short(path)


def _check(path: str, header: bytes, offset: int) -> None:
    if offset == 0 and header.startswith(COMPRESSED_STARTS):
        raise UserError(f"Shard {path} is compressed; unpack it to a plain .tar, which allows random access.")
    if len(header) < BLOCK:
        raise _cut_short(path)
    try:  # the checksum counts its own field as spaces
        whole = sum(header) - sum(header[148:156]) + 8 * 32 == int(header[148:156].rstrip(b"\0 ") or b"0", 8)
    except ValueError:
        whole = False
    if not whole:
        raise UserError(f"Shard {path} is not a tar file or is damaged at byte {offset}; copy or create it again.")


def _cut_short(path: str) -> UserError:
    return UserError(f"Shard {path} is cut short; copy or create it again.")


def _damaged(path: str) -> UserError:
    return UserError(f"Shard {path} has a damaged header; copy or create it again.")


def _number(path: str, field: bytes) -> int:
    """Octal digits, or binary where the first bit is set."""
    if field[0] & 0x80:
        return int.from_bytes(field[1:], "big")
    digits = field.strip(b"\0 ") or b"0"
    if OCTAL.fullmatch(digits) is None:  # Python would also take signs and underscores
        raise _damaged(path)
    return int(digits, 8)


def _name(header: bytes) -> bytes:
    name = header[:100].partition(b"\0")[0]
    prefix = header[345:500].partition(b"\0")[0] if header[257:263] == b"ustar\0" else b""
    return prefix + b"/" + name if prefix else name


def _pax(path: str, records: bytes) -> dict[str, bytes]:
    """Records of the form `LENGTH KEY=VALUE` and a line feed; only path and size are used."""
    found, start = dict[str, bytes](), 0
    while start < len(records):
        match = PAX_LENGTH.match(records, start)
        end = start + int(match[1]) if match else start
        if match is None or not match.end() < end <= len(records):
            raise _damaged(path)
        key, _, value = records[match.end() : end - 1].partition(b"=")
        if key == b"path" or (key == b"size" and DECIMAL.fullmatch(value)):
            found[key.decode()] = value
        start = end
    return found
