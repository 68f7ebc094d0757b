"""The index of a folder, from a listing and from the cache, always matches the disk."""

import inspect
import os
import pickle
import shutil
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from scfs.data import folder_index
from scfs.data.folder_index import index_folder
from scfs.data.folder_walk import BROKEN_LINK, other_suffixes
from scfs.data.paths import Names
from scfs.errors import UserError


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SCFS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def root(tmp_path):
    """Folders in folders, some with images on both sides of a subfolder; all of them settled."""
    root = tmp_path / "images"
    for name in ("a/1.jpg", "a/b/2.JPEG", "a/z.png", "a-b/3.webp", "b/4.jpg", "b/c/d/5.tif", "c.d/e/6.bmp", "x.txt"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    (root / "empty").mkdir()
    return root


@pytest.fixture
def settled(monkeypatch):
    """Nothing counts as recent: change times cannot be set back."""
    monkeypatch.setattr(folder_index, "SETTLED_NS", -(10**12))


def listed(root, **options):
    files = index_folder(str(root), min_cached=0, **options)
    return [files.path(i) for i in range(len(files.names))]


def on_disk(root):
    return sorted(path for path in Path(root).rglob("*") if path.suffix.lower() in folder_index.SUFFIXES)


def test_every_image_in_order_of_path(root):
    assert listed(root) == list(map(str, on_disk(root)))


@pytest.mark.usefixtures("settled")
def test_the_second_start_lists_no_folder(root, monkeypatch):
    first = listed(root)
    monkeypatch.setattr(os, "scandir", None)
    assert listed(root) == first


def add_file(root):
    (root / "b" / "new.jpg").touch()


def add_to_root(root):
    (root / "aa.jpg").touch()


def remove_file(root):
    (root / "b" / "4.jpg").unlink()


def rename_file(root):
    (root / "b" / "4.jpg").rename(root / "b" / "5.jpg")


def move_file(root):
    (root / "b" / "c" / "d" / "5.tif").rename(root / "empty" / "5.tif")


def add_folder(root):
    (root / "b" / "c" / "new" / "deep").mkdir(parents=True)
    (root / "b" / "c" / "new" / "deep" / "7.jpg").touch()


def remove_folder(root):
    shutil.rmtree(root / "b" / "c")


def rename_folder(root):
    (root / "a").rename(root / "zz")


def swap_folders(root):
    (root / "a").rename(root / "tmp")
    (root / "b").rename(root / "a")
    (root / "tmp").rename(root / "b")


def replace_folder(root):
    shutil.rmtree(root / "a-b")
    (root / "a-b").mkdir()
    (root / "a-b" / "other.jpg").touch()


def file_becomes_folder(root):
    (root / "b" / "4.jpg").unlink()
    (root / "b" / "4.jpg").mkdir()
    (root / "b" / "4.jpg" / "inner.jpg").touch()


def folder_becomes_run(root):
    (root / "b" / "settings.toml").touch()
    (root / "b" / "metrics.jsonl").touch()


CHANGES = [
    add_file,
    add_to_root,
    remove_file,
    rename_file,
    move_file,
    add_folder,
    remove_folder,
    rename_folder,
    swap_folders,
    replace_folder,
    file_becomes_folder,
    folder_becomes_run,
]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.usefixtures("settled")
def test_changes_are_noticed(root, change):
    before = listed(root)
    time.sleep(0.02)  # longer than the resolution of file times
    change(root)
    in_run = root / "b" if change is folder_becomes_run else None
    after = [str(path) for path in on_disk(root) if path.is_file() and in_run not in path.parents]
    assert after != before
    assert listed(root) == after  # with the old cache
    assert listed(root) == after  # with the new one


@pytest.mark.usefixtures("settled")
def test_only_what_changed_is_listed_again(root, monkeypatch):
    listed(root)
    time.sleep(0.02)
    add_file(root)
    seen, scandir = [], os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: seen.append(os.fsdecode(path)) or scandir(path))
    listed(root)
    assert seen == [str(root / "b")]


@pytest.mark.usefixtures("settled")
def test_a_change_with_a_restored_mtime_is_noticed(root):
    """As rsync and tar do: the folder's mtime is set back afterwards."""
    times = (root / "b").stat()
    listed(root)
    time.sleep(0.02)
    add_file(root)
    os.utime(root / "b", ns=(times.st_atime_ns, times.st_mtime_ns))
    assert str(root / "b" / "new.jpg") in listed(root)


def test_a_folder_that_just_changed_is_listed_again(root, monkeypatch):
    """File times are coarse: a second change may leave the same time."""
    listed(root)
    monkeypatch.setattr(folder_index, "_stamp", lambda stat: (1, 1, stat.st_ino))  # as if the clock stood still
    listed(root)
    add_file(root)
    assert str(root / "b" / "new.jpg") in listed(root)


@pytest.mark.usefixtures("settled")
def test_a_broken_link_whose_target_appears(root, tmp_path):
    (root / "b" / "link.jpg").symlink_to(tmp_path / "later.jpg")
    assert str(root / "b" / "link.jpg") not in listed(root)
    (tmp_path / "later.jpg").touch()
    assert str(root / "b" / "link.jpg") in listed(root)


def test_broken_links_are_counted(root, tmp_path):
    for name in ("b/link.jpg", "class", "note.txt"):
        (root / name).symlink_to(tmp_path / "nowhere")
    (root / "good").symlink_to(root / "a")
    (root / "good.jpg").symlink_to(root / "a" / "1.jpg")
    assert other_suffixes(root) == {".txt": 1, BROKEN_LINK: 3}


@pytest.mark.usefixtures("settled")
def test_a_run_folder_is_listed_once_it_is_none(root):
    folder_becomes_run(root)
    for _ in range(2):
        assert not [path for path in listed(root) if path.startswith(f"{root}/b/")]
    time.sleep(0.02)
    (root / "b" / "settings.toml").unlink()
    assert str(root / "b" / "c" / "d" / "5.tif") in listed(root)


@pytest.mark.parametrize("damage", [b"", b"no cache", None])
@pytest.mark.usefixtures("settled")
def test_a_damaged_cache_is_rebuilt(root, cache, damage):
    expected = listed(root)
    (path,) = cache.iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2] if damage is None else damage)
    assert listed(root) == expected
    assert path.read_bytes() == whole


@pytest.mark.usefixtures("settled")
def test_a_foreign_cache_is_rebuilt(root, cache):
    expected = listed(root)
    (path,) = cache.iterdir()
    np.savez(path.with_suffix(""), other=np.zeros(3))
    assert listed(root) == expected


def test_a_flipped_byte_in_the_cache_changes_nothing(root, cache, monkeypatch):
    monkeypatch.setattr(folder_index, "SETTLED_NS", -(10**12))
    expected = listed(root)
    (path,) = cache.iterdir()
    damaged = bytearray(path.read_bytes())
    damaged[damaged.index(b"2.JPEG")] = ord("9")
    path.write_bytes(damaged)
    assert listed(root) == expected


def test_a_cache_that_cannot_be_written(root, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("SCFS_CACHE", str(tmp_path / "file" / "cache"))
    assert listed(root) == list(map(str, on_disk(root)))


@pytest.mark.usefixtures("settled")
def test_only_the_cache_is_written(root, cache):
    listed(root)
    assert [path.suffix for path in cache.iterdir()] == [".npz"]


def test_few_files_are_not_cached(root, cache):
    index_folder(str(root))
    assert not cache.exists()


@pytest.mark.parametrize(
    ("variables", "folder"),
    [({"SCFS_CACHE": "/a"}, "/a"), ({"XDG_CACHE_HOME": "/b"}, "/b/scfs"), ({"HOME": "/c"}, "/c/.cache/scfs")],
)
def test_where_the_cache_is(monkeypatch, variables, folder):
    from scfs.data.cache import cache_folder

    for name in ("SCFS_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert cache_folder() == Path(folder)


@pytest.mark.usefixtures("settled")
def test_linked_folders_are_followed_but_not_in_circles(root, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "far.jpg").touch()
    (root / "b" / "link").symlink_to(tmp_path / "elsewhere")
    (root / "b" / "c" / "up").symlink_to(root)
    (root / "self").symlink_to(".")
    expected = [*on_disk(root), root / "b" / "link" / "far.jpg"]
    for _ in range(2):
        assert sorted(listed(root)) == sorted(map(str, expected))
    time.sleep(0.02)
    (tmp_path / "elsewhere" / "farther.jpg").touch()
    assert str(root / "b" / "link" / "farther.jpg") in listed(root)


def test_hidden_names_are_left_out(root):
    before = listed(root)
    (root / "a" / "._1.jpg").touch()
    (root / ".thumbnails").mkdir()
    (root / ".thumbnails" / "1.jpg").touch()
    assert listed(root) == before


@pytest.mark.usefixtures("settled")
def test_names_that_are_not_text(root):
    with open(os.path.join(os.fsencode(root), b"b", b"\xff\xfe.jpg"), "wb"):  # noqa: PTH123, PTH118
        pass
    for _ in range(2):
        (path,) = [path for path in listed(root) if "\udcff" in path]
        assert os.path.exists(path)  # noqa: PTH110


def test_a_folder_that_cannot_be_listed(root, monkeypatch):
    scandir = os.scandir

    def refuse(path):
        if path.endswith(b"/c"):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(UserError, match=r"Cannot list folder .*b/c: Permission denied"):
        listed(root)


def test_names_are_a_sequence():
    strings = [b"one", b"", b"three", b"four"]
    names = pickle.loads(pickle.dumps(Names.of(strings)))
    assert list(names) == [names[i] for i in range(4)] == names[:] == strings
    assert names[1:3] == strings[1:3]
    assert names[-1] == b"four"
    assert list(Names.of([])) == Names.of([])[:] == []
    with pytest.raises(IndexError):
        names[4]


def test_folders_that_link_to_each_other(root, tmp_path):
    """Ten folders with links to all others have millions of paths; each image is listed once."""
    folders = [tmp_path / "linked" / str(i) for i in range(10)]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "photo.jpg").touch()
    for folder in folders:
        for other in folders:
            (folder / f"to{other.name}").symlink_to(other)
    expected = listed(root)
    (root / "b" / "link").symlink_to(folders[0])
    found = listed(root)
    assert len(found) == len(expected) + len(folders)
    assert len({Path(path).resolve() for path in found}) == len(found)


@pytest.mark.usefixtures("settled")
def test_a_link_to_a_folder_that_is_listed_anyway(root):
    """The folder itself counts, whatever the order of the names; when it goes, a link that took no part may."""
    expected = listed(root)
    (root / "0").symlink_to(root / "b")
    assert listed(root) == expected
    (root / "b").rename(root.parent / "moved")
    (root / "0").unlink()
    (root / "1").symlink_to(root.parent / "moved")
    (root / "2").symlink_to(root.parent / "moved")
    assert [path for path in listed(root) if "4.jpg" in path] == [str(root / "1" / "4.jpg")]
    (root / "1").unlink()
    assert [path for path in listed(root) if "4.jpg" in path] == [str(root / "2" / "4.jpg")]


def test_folders_nested_more_deeply_than_calls_may_be(tmp_path):
    """With a lower limit on calls: a thousand folders take seconds to make and to remove."""
    deep = tmp_path.joinpath("deep", *["d"] * 150)
    deep.mkdir(parents=True)
    (deep / "last.jpg").touch()
    (deep / "other.heic").touch()
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 50)
    try:
        found, others = listed(tmp_path / "deep"), other_suffixes(tmp_path / "deep")
    finally:
        sys.setrecursionlimit(limit)
    assert found == [str(deep / "last.jpg")]
    assert others == {".heic": 1}
