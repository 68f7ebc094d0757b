"""Zip files that torch cannot have written are refused before anything of them is expanded."""

import io
import struct
import zipfile

import pytest
import torch

from scfs.errors import UserError
from scfs.runs import checkpoint
from scfs.weights.read import read_weights


@pytest.fixture
def parts(tmp_path):
    """The parts of a valid checkpoint."""
    checkpoint.save(tmp_path / "whole.pt", {"teacher": {"layer.weight": torch.ones(300)}})
    with zipfile.ZipFile(tmp_path / "whole.pt") as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def deflated(parts):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def stored(parts, *more):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in [*parts.items(), *more]:
            archive.writestr(name, content)
    return buffer.getvalue()


@pytest.mark.filterwarnings("ignore:Duplicate name")
def repeated(parts):
    name = next(iter(parts))
    return stored(parts, (name, parts[name]))


def central_directory(data):
    """The position of the central directory, and of the entries in it."""
    end = data.rfind(b"PK\x05\x06")
    start = struct.unpack("<I", data[end + 16 : end + 20])[0]
    return [at for at in range(start, end) if data[at : at + 4] == b"PK\x01\x02"]


def overlapping(parts):
    """Every entry leads to the same part."""
    data = bytearray(stored(parts))
    for at in central_directory(data):
        data[at + 42 : at + 46] = bytes(4)
    return bytes(data)


def with_method(parts, method):
    """Compressed in a way that zipfile does not know."""
    data = bytearray(stored(parts))
    at = central_directory(data)[0]
    data[at + 10 : at + 12] = struct.pack("<H", method)
    return bytes(data)


def encrypted(parts):
    data = bytearray(stored(parts))
    data[central_directory(data)[0] + 8] |= 1
    return bytes(data)


def not_text(parts):
    """A name marked as UTF-8 that is not."""
    data = bytearray(stored(parts))
    at = central_directory(data)[0]
    data[at + 9] |= 8
    data[at + 46] = 0xFF
    return bytes(data)


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (deflated, "is compressed"),
        (repeated, "it has two parts"),
        (overlapping, "overlaps another"),
        (lambda parts: with_method(parts, 99), "is compressed"),
        (lambda parts: with_method(parts, 14), "is compressed"),
        (encrypted, "encrypted"),
        (not_text, r"codec can't decode"),
        (lambda parts: stored(parts)[:-30], "cut short"),
    ],
)
def test_what_torch_does_not_write(tmp_path, parts, monkeypatch, make, reason):
    path = tmp_path / "odd.pt"
    path.write_bytes(make(parts))
    monkeypatch.setattr(torch, "load", None)
    for read in (checkpoint.load, lambda path: read_weights(str(path))):
        with pytest.raises(UserError, match=reason) as error:
            read(path)
        assert "\n" not in str(error.value)


def test_a_stored_copy_is_read(tmp_path, parts):
    (tmp_path / "copy.pt").write_bytes(stored(parts))
    assert checkpoint.load(tmp_path / "copy.pt")["teacher"]["layer.weight"].sum() == 300
