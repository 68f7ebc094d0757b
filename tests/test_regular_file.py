"""Named pipes, sockets, devices and folders where a file is expected: a sentence at once, and nothing blocks."""

import os
import socket
from pathlib import Path

import pytest

from scfs.data.decode import Unreadable
from scfs.data.lists import read_list
from scfs.data.sources import open_train
from scfs.regular_file import open_regular, read_regular

KINDS = {"pipe": "a named pipe", "socket": "a socket", "device": "a device", "folder": "Is a directory"}


@pytest.fixture
def odd(tmp_path, monkeypatch):
    """One of each, with a suffix."""
    monkeypatch.chdir(tmp_path)  # the path of a socket must be short

    def make(kind, suffix=""):
        path = Path(f"{kind}{suffix}")
        if kind == "pipe":
            os.mkfifo(path)
        elif kind == "socket":
            socket.socket(socket.AF_UNIX).bind(str(path))
        elif kind == "device":
            path.symlink_to("/dev/zero")
        else:
            path.mkdir()
        return path

    return make


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
@pytest.mark.parametrize("kind", KINDS)
class TestOddFiles:
    def test_open(self, odd, kind):
        with pytest.raises(OSError, match=KINDS[kind]):
            open_regular(odd(kind))

    def test_an_image_of_a_list(self, odd, kind):
        Path("list.txt").write_text(f"{odd(kind, '.jpg')}\n")
        with pytest.raises(Unreadable, match=KINDS[kind]):
            read_list(Path("list.txt")).image(0)

    def test_an_image_of_a_folder_is_left_out(self, odd, kind, photos):
        odd(kind, ".jpg").rename(photos / "cats" / "odd.jpg")
        assert len(open_train(str(photos))) == 12

    def test_a_shard_of_a_folder_is_left_out(self, odd, kind, photos):
        odd(kind, ".tar").rename(photos / "odd.tar")
        assert len(open_train(str(photos))) == 12

    @pytest.mark.parametrize(
        ("args", "suffix"),
        [
            (("pretrain", "{}"), ".toml"),
            (("pretrain", "quickstart", "--data.source", "{}", "--run.folder", "run"), ".txt"),
            (("knn", "{}", "--data", "scenes:20,10"), ".pth"),
            (("knn", "{}", "--data", "scenes:20,10"), ".safetensors"),
            (("embed", "random:resnet10_half", "scenes:20,10", "--query", "{}", "--nearest", "2"), ".jpg"),
            (("attend", "random:resnet10_half", "--images", "{}", "--out", "a.png"), ".jpg"),
        ],
    )
    def test_named_by_the_user(self, odd, kind, scfs, args, suffix):
        path = odd(kind, suffix)
        code, _, err = scfs(*(arg.format(path) for arg in args))
        assert code == 2
        assert err.count("\n") == 1
        assert str(path) in err


def test_no_more_than_the_limit_is_read(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert read_regular(path, limit=5) == b"12345"
    with pytest.raises(OSError, match="more than 4 bytes"):
        read_regular(path, limit=4)
