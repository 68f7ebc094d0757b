"""Damaged files of every kind that scfs reads. Each is a function of its random generator."""

import io
import struct
import tarfile
import zipfile
import zlib
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from scfs.data.scenes import render_scene
from scfs.runs import checkpoint

ODD_BYTES = (0x00, 0x01, 0x7F, 0x80, 0xFE, 0xFF, 0x30, 0x2D)
ODD_FIELDS = (b"-0000000001", b"77777777777", b"9", b"\x80" + b"\xff" * 10, b"\xff" * 11, b"1_0", b"0x7", b" ", b"\0")


def mutated(data: bytes, random: np.random.Generator) -> bytes:
    """The same bytes with one to eight small damages, half of them near the start or the end."""
    broken = bytearray(data)
    for _ in range(int(random.integers(1, 9))):
        if not broken:
            break
        at = int(random.integers(len(broken)))
        if random.random() < 0.5:
            at = int(random.integers(min(len(broken), 600)))
            at = at if random.random() < 0.7 else len(broken) - 1 - at
        length = int(random.integers(1, 40))
        match int(random.integers(7)):
            case 0:
                broken[at] = int(random.integers(256))
            case 1:
                broken[at] = int(random.choice(ODD_BYTES))
            case 2:
                broken[at] ^= 1 << int(random.integers(8))
            case 3:
                broken[at : at + length] = random.bytes(length)
            case 4:
                del broken[at : at + length]
            case 5:
                broken[at:at] = broken[at : at + 8 * length]
            case _:
                if random.random() < 0.2:
                    del broken[at:]
    return bytes(broken)


def scene(index: int) -> Image.Image:
    """A small image."""
    return Image.fromarray(render_scene(0, "train", index).image).resize((72, 56))


def encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    """An image as a file of a kind."""
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


@lru_cache
def images() -> tuple[bytes, ...]:
    """One valid image of each kind that is read differently."""
    photo = scene(0)
    grey = np.asarray(photo.convert("L"))
    frames = [scene(1), scene(2)]
    return (
        encoded(photo, "JPEG"),
        encoded(photo, "JPEG", progressive=True),
        encoded(photo.convert("CMYK"), "JPEG"),
        encoded(photo, "PNG"),
        encoded(photo.quantize(16), "PNG", transparency=3),
        encoded(Image.fromarray(grey.astype(np.uint16) * 257), "PNG"),
        encoded(photo, "WEBP"),
        encoded(photo, "GIF", save_all=True, append_images=frames),
        encoded(photo, "BMP"),
        encoded(photo, "TIFF"),
        encoded(photo, "TIFF", compression="tiff_lzw"),
        encoded(photo, "TIFF", compression="jpeg"),
        encoded(Image.fromarray(grey.astype(np.float32)), "TIFF"),
        encoded(photo, "PPM"),
    )


def broken_image(random: np.random.Generator) -> bytes:
    """Damaged anywhere; of a PNG, the checksums mostly fit again."""
    data = mutated(images()[int(random.integers(len(images())))], random)
    return with_checksums(data) if data[:4] == b"\x89PNG" and random.random() < 0.7 else data


def with_checksums(png: bytes) -> bytes:
    """A PNG whose chunks fit their checksums again, so that more than those is tried."""
    parts, at = [png[:8]], 8
    while at + 12 <= len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        body = png[at + 4 : at + 8 + length]
        parts += [png[at : at + 4], body, struct.pack(">I", zlib.crc32(body))]
        at += 12 + length
    return b"".join(parts)


@lru_cache
def tar(kind: int) -> bytes:
    """Shards in each dialect, with labels, long names and a text file."""
    buffer = io.BytesIO()
    with tarfile.open(
        fileobj=buffer, mode="w", format=(tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)[kind]
    ) as file:
        for i, data in enumerate(images()[:4]):
            long = "d" * 90 + "/" if kind == 0 else "é" * 120 + "/"
            for name, content in ((f"{i}.cls", b"%d" % i), (f"{i}.jpg", data), (f"{long}{i}.png", images()[3])):
                info = tarfile.TarInfo(name)
                info.size = len(content)
                file.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def broken_tar(random: np.random.Generator) -> bytes:
    """Damaged anywhere, or in the fields of its headers, whose checksums are then made to fit."""
    data = bytearray(tar(int(random.integers(3))))
    if random.random() < 0.3:
        return mutated(bytes(data), random)
    starts = [at for at in range(0, len(data), 512) if data[at + 257 : at + 262] == b"ustar"]
    for at in random.choice(starts, 3):
        first, length = ((0, 100), (124, 12), (124, 12), (156, 1), (345, 155))[int(random.integers(5))]
        odd = random.bytes(length) if random.random() < 0.3 else ODD_FIELDS[int(random.integers(len(ODD_FIELDS)))]
        data[at + first : at + first + length] = odd[:length].ljust(length, b"\0")
        data[at + 512 : at + 1024] = mutated(bytes(data[at + 512 : at + 1024]), random)[:512].ljust(512, b"\0")
        header = data[at : at + 512]
        data[at + 148 : at + 156] = b"%06o\0 " % (sum(header) - sum(header[148:156]) + 8 * 32)
    return bytes(data)


@lru_cache
def parquet(kind: int) -> bytes:
    """Tables with and without paths, dictionaries and compression."""
    import pyarrow
    import pyarrow.parquet

    data = [encoded(scene(i), "JPEG") for i in range(6)]
    pictures = [{"bytes": each, "path": f"{i}.jpg"} for i, each in enumerate(data)] if kind % 2 else data
    table = pyarrow.table({"image": pictures, "label": [0, 1, 2, 0, 1, 2]})
    file = io.BytesIO()
    pyarrow.parquet.write_table(
        table, file, row_group_size=2, compression=("none", "snappy", "zstd")[kind % 3], use_dictionary=kind < 3
    )
    return file.getvalue()


def broken_parquet(random: np.random.Generator) -> bytes:
    """Damaged anywhere or, more often, in the metadata at its end."""
    data = parquet(int(random.integers(6)))
    (length,) = struct.unpack("<I", data[-8:-4])
    footer = len(data) - 8 - length
    if random.random() < 0.4:
        return mutated(data, random)
    body = mutated(data[footer:-8], random)
    return data[:footer] + body + struct.pack("<I", len(body)) + data[-4:]


@lru_cache
def checkpoint_file() -> bytes:
    """A valid checkpoint."""
    buffer = io.BytesIO()
    tensors = {f"layer{i}.weight": torch.arange(24.0).reshape(4, 6) for i in range(4)}
    torch.save({"scfs_checkpoint": checkpoint.FORMAT, "step": 3, "teacher": tensors}, buffer)
    return buffer.getvalue()


def broken_checkpoint(random: np.random.Generator) -> bytes:
    """Damaged anywhere, or in a part, whose checksum is then made to fit."""
    if random.random() < 0.5:
        return mutated(checkpoint_file(), random)
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(checkpoint_file())) as whole, zipfile.ZipFile(buffer, "w") as broken:
        chosen = "data.pkl" if random.random() < 0.7 else str(random.choice([Path(n).name for n in whole.namelist()]))
        for name in whole.namelist():
            content = whole.read(name)
            kind = zipfile.ZIP_DEFLATED if random.random() < 0.02 else zipfile.ZIP_STORED
            content = mutated(content, random) if Path(name).name == chosen else content
            broken.writestr(name, content, compress_type=kind)
    return buffer.getvalue()
