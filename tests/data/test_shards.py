import io
import os
import pickle
import tarfile
import time

import numpy as np
import pytest
from PIL import Image

from scfs.data import archives, shards
from scfs.data.decode import Unreadable
from scfs.data.shards import index_shards
from scfs.data.sources import open_labelled, open_train
from scfs.data.tar_members import Member, tar_members
from scfs.errors import UserError


def jpeg(color):
    buffer = io.BytesIO()
    Image.new("RGB", (16, 12), (color, 50, 200)).save(buffer, "JPEG")
    return buffer.getvalue()


def write_tar(path, members, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w", **options) as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def write_samples(path, numbers, *, labels=True):
    """As webdataset's TarWriter: KEY.cls beside KEY.jpg; the color encodes the number."""
    members = []
    for i, number in enumerate(numbers):
        members += [(f"{i:06d}.cls", str(number).encode())] if labels else []
        members += [(f"{i:06d}.jpg", jpeg(20 * number)), (f"{i:06d}.json", b"{}")]
    return write_tar(path, members)


@pytest.fixture
def folder(tmp_path):
    """Two shards of six samples of the classes 2 and 7."""
    for shard in range(2):
        write_samples(tmp_path / "shards" / f"x-{shard:06d}.tar", [7, 2, 7, 2, 2, 7])
    return tmp_path / "shards"


def color(source, index):
    return round(source.image(index).getpixel((8, 6))[0] / 20)


@pytest.mark.parametrize("pattern", ["*.tar", "x-{000000..000001}.tar", "x-00000[01].tar", "", "x-{000000,000001}.tar"])
def test_shards_by_pattern(folder, pattern):
    source = open_train(str(folder / pattern))
    assert len(source) == 12
    assert source.classes == ("2", "7")
    assert [source.label(i) for i in range(12)] == [1, 0, 1, 0, 0, 1] * 2
    for i in reversed(range(12)):
        assert color(source, i) == int(source.classes[source.label(i)])
    assert source.name(7) == f"{folder}/x-000001.tar/000001.jpg"


def test_one_shard(folder):
    assert len(open_train(str(folder / "x-000001.tar"))) == 6


def test_home_is_expanded(folder, monkeypatch):
    monkeypatch.setenv("HOME", str(folder))
    assert len(open_train("~/x-*.tar")) == 12


def test_every_fifth_is_held_out(folder):
    train, val = open_labelled(str(folder))
    assert (len(train), len(val)) == (10, 2)
    assert [color(val, i) for i in range(2)] == [int(val.classes[val.label(i)]) for i in range(2)]


@pytest.mark.parametrize("names", [("set-train-0.tar", "set-validation-0.tar"), ("train/0.tar", "val/0.tar")])
def test_splits_by_name(tmp_path, names):
    write_samples(tmp_path / "set" / names[0], [1, 2, 3])
    write_samples(tmp_path / "set" / names[1], [2, 3])
    assert len(open_train(str(tmp_path / "set"))) == 3
    train, val = open_labelled(str(tmp_path / "set"))
    assert train.classes == val.classes == ("1", "2", "3")  # one that val lacks is still counted
    assert [val.label(i) for i in range(2)] == [1, 2]


def test_labels_only_if_every_sample_has_one(tmp_path):
    path = write_tar(tmp_path / "a.tar", [("1.jpg", jpeg(1)), ("1.cls", b"3\n"), ("2.jpg", jpeg(2))])
    assert open_train(str(path)).classes == ()
    with pytest.raises(UserError, match="have no labels"):
        open_labelled(str(path))


def test_a_label_that_is_not_a_number_is_ignored(tmp_path):
    path = write_tar(tmp_path / "a.tar", [("1.jpg", jpeg(1)), ("1.cls", b"cat")])
    assert open_train(str(path)).classes == ()


def test_unusual_members(tmp_path):
    members = [
        ("sub/a.seg.png", b"mask"),
        ("sub/a.jpg", jpeg(40)),
        ("sub/._a.jpg", b"hidden"),
        ("other/a.JPEG", jpeg(60)),  # another key: the folder is part of it
        ("text.txt", b"no image"),
        ("README", b""),
        ("b.tar.png", jpeg(80)),
    ]
    source = open_train(str(write_tar(tmp_path / "a.tar", members)))
    ours = [source.name(i).removeprefix(f"{tmp_path}/a.tar/") for i in range(len(source))]
    assert ours == ["sub/a.jpg", "other/a.JPEG", "b.tar.png"]
    assert [color(source, i) for i in range(3)] == [2, 3, 4]


@pytest.mark.parametrize("kind", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_members_are_where_tarfile_finds_them(tmp_path, kind):
    random = np.random.default_rng(0)
    names = ["a.jpg", "d" * 90 + "/" + "f" * 60 + ".jpg", "b.cls", "empty.txt"]
    names += [] if kind == tarfile.USTAR_FORMAT else ["x" * 150 + "/" + "y" * 200 + ".png", "käse.jpg", "last.jpg"]
    members = [(name, random.bytes(int(random.integers(0, 2000)))) for name in names]
    path = write_tar(tmp_path / "a.tar", members, format=kind)
    with tarfile.open(path) as tar:
        theirs = [Member(info.name.encode(), info.offset_data, info.size) for info in tar if info.isfile()]
    with path.open("rb") as file:
        assert list(tar_members(str(path), file.fileno())) == theirs
        for member, (_, data) in zip(theirs, members, strict=True):
            assert os.pread(file.fileno(), member.size, member.offset) == data


def test_sources_survive_pickling(folder):
    source = pickle.loads(pickle.dumps(open_train(str(folder))))
    assert color(source, 3) == 2


def test_a_damaged_image_is_unreadable(tmp_path):
    path = write_tar(tmp_path / "a.tar", [("1.jpg", b"no image"), ("2.jpg", jpeg(40))])
    source = open_train(str(path))
    with pytest.raises(Unreadable, match=r"a.tar/1.jpg: it is not an image"):
        source.image(0)
    assert color(source, 1) == 2


def test_a_shard_that_shrinks_or_disappears(folder):
    source = open_train(str(folder))
    os.truncate(folder / "x-000001.tar", 600)
    with pytest.raises(Unreadable, match="shorter than it was"):
        source.image(11)
    (folder / "x-000001.tar").unlink()
    with pytest.raises(Unreadable, match="No such file"):
        source.image(11)


@pytest.mark.parametrize("fraction", [0.1, 0.5, 0.9, "in a header", "no end"])
def test_a_shard_cut_short(folder, fraction):
    path = folder / "x-000001.tar"
    with tarfile.open(path) as tar:
        last = tar.getmembers()[-1]
    lengths = {"in a header": last.offset + 100, "no end": last.offset_data + 512}
    os.truncate(path, lengths.get(fraction) or int(path.stat().st_size * fraction) // 512 * 512 + 7)
    if fraction == 0.9:  # only padding is missing
        os.truncate(path, last.offset_data - 512)
    with pytest.raises(UserError, match=r"Shard .*x-000001.tar is cut short"):
        open_train(str(folder))


def test_an_empty_shard(folder):
    os.truncate(folder / "x-000000.tar", 0)
    with pytest.raises(UserError, match="cut short"):
        open_train(str(folder))


@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz", "a.tgz"])
def test_compressed_shards(tmp_path, name):
    with tarfile.open(tmp_path / name, "w:gz") as tar:
        tar.addfile(tarfile.TarInfo("1.jpg"))
    for source in (tmp_path / name, tmp_path):
        with pytest.raises(UserError, match="is compressed; unpack it"):
            open_train(str(source))


def test_a_damaged_header(folder):
    path = folder / "x-000000.tar"
    data = bytearray(path.read_bytes())
    data[3] ^= 1
    path.write_bytes(data)
    with pytest.raises(UserError, match="damaged at byte 0"):
        open_train(str(folder))


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("x-{000000..000004}.tar", r"No file at .*x-000002.tar, nor at 2 more of the 5 that"),
        ("y-*.tar", "No file matches"),
        ("y.tar", "No file at"),
        ("*.{tar,parquet}", "not all .tar or all .parquet"),
        ("*", "not all .tar or all .parquet"),
    ],
)
def test_bad_patterns(folder, name, sentence):
    (folder / "a.parquet").touch()
    with pytest.raises(UserError, match=sentence):
        open_train(str(folder / name))


def test_shards_without_images(tmp_path):
    with pytest.raises(UserError, match="No images in"):
        open_train(str(write_tar(tmp_path / "a.tar", [("1.txt", b"text")])))


def test_tars_beside_folders_are_ignored(photos):
    write_tar(photos / "photos.tar", [("1.jpg", jpeg(1))])
    assert len(open_train(str(photos))) == 12


def test_the_index_is_cached_until_a_shard_changes(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("SCFS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(shards, "SETTLED_NS", -(10**12))
    paths = [str(path) for path in sorted(folder.iterdir())]
    first = index_shards(paths, min_cached=0)
    with monkeypatch.context() as patch:
        patch.setattr(shards, "tar_members", None)
        second = index_shards(paths, min_cached=0)
    assert all(np.array_equal(first[name], second[name]) for name in first)
    write_samples(folder / "x-000001.tar", [1])
    assert len(index_shards(paths, min_cached=0)["offsets"]) == 7


@pytest.mark.parametrize(
    "name", ["x-{0..99999999999}.tar", "{0..9999}{0..9999}.tar", "{a,b}" * 30 + ".tar", f"{{0..{'9' * 200}}}.tar"]
)
def test_patterns_without_end(folder, name):
    with pytest.raises(UserError, match="names more than 1,000,000 files") as error:
        open_train(str(folder / name))
    assert len(str(error.value)) < 400


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("{a,b}-{8..10}", ["a-8", "a-9", "a-10", "b-8", "b-9", "b-10"]),
        ("{a,{b,c}}", ["a", "b", "a", "c"]),
        ("{3..1}", []),
        ("{a}" * 2000, ["a" * 2000]),
    ],
)
def test_braces(name, expected):
    assert archives._expand_braces(name) == expected


def with_field(path, first, value):
    """The same shard with a field of its first header changed, and the checksum that fits."""
    data = bytearray(path.read_bytes())
    data[first : first + len(value)] = value
    data[148:156] = b"%06o\0 " % (sum(data[:512]) - sum(data[148:156]) + 8 * 32)
    path.write_bytes(data)


@pytest.mark.parametrize("size", [b"-0000000001\0", b"0000000001_0", b"99999999999\0", b"0x00000000a\0"])
def test_a_size_that_is_no_octal_number(folder, size):
    with_field(folder / "x-000000.tar", 124, size)
    with pytest.raises(UserError, match="has a damaged header"):
        open_train(str(folder))


@pytest.mark.parametrize(
    "records",
    [b"9" * 5000 + b" size=1\n", b"13 size=-00001\n"[:12], b"1 size=1\n", b"99999 size=1\n", b"0 a=1\n", b"a a=1\n"],
)
def test_damaged_pax_records(tmp_path, records):
    path = write_tar(tmp_path / "a.tar", [("first", records), ("1.jpg", jpeg(1))])
    with_field(path, 156, b"x")
    with pytest.raises(UserError, match="has a damaged header"):
        open_train(str(path))


def test_a_million_pax_records_take_no_time(tmp_path):
    records = b"5 a=\n" * 200_000
    path = write_tar(tmp_path / "a.tar", [("first", records), ("1.jpg", jpeg(1))])
    with_field(path, 156, b"x")
    start = time.process_time()
    assert len(open_train(str(path))) == 1
    assert time.process_time() - start < 5


def test_a_header_of_megabytes_is_refused(tmp_path):
    path = write_tar(tmp_path / "a.tar", [("first", bytes(2**20 + 1)), ("1.jpg", jpeg(1))])
    for kind in (b"L", b"x"):
        with_field(path, 156, kind)
        with pytest.raises(UserError, match="has a damaged header"):
            open_train(str(path))


def test_a_class_of_more_than_64_bits_is_ignored(tmp_path):
    path = write_tar(tmp_path / "a.tar", [("1.jpg", jpeg(1)), ("1.cls", b"99999999999999999999")])
    assert open_train(str(path)).classes == ()
