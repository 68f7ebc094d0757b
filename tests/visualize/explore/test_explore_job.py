"""What `scfs explore` loads, chooses and refuses, and the states behind its page."""

import base64
import importlib.util
import signal
import socket
import subprocess
import sys
import urllib.request
from threading import Thread

import httpx2
import numpy as np
import pytest
from explored import session_of
from PIL import Image

from scfs.data.decode import Unreadable
from scfs.visualize.explore.job import reserve_port
from scfs.visualize.explore.state.byte_cache import ByteCache
from scfs.visualize.explore.state.gallery import CENTRE, Gallery
from scfs.visualize.explore.state.session import to_pixels


def test_a_cache_keeps_the_most_recently_used_bytes():
    cache = ByteCache[str, bytes](10, len)
    for key in "abc":
        cache.put(key, bytes(3))
    assert cache.get("a") == bytes(3)
    cache.put("d", bytes(4))  # b is the least recently used
    assert [cache.get(key) is not None for key in "abcd"] == [True, False, True, True]
    assert cache.num_bytes == 10
    cache.put("d", bytes(1))
    cache.put("e", bytes(11))  # larger than all of it
    assert (cache.num_bytes, len(cache), cache.get("e")) == (7, 3, None)


def test_a_cache_of_several_threads_counts_right():
    cache = ByteCache[int, bytes](1000, len)

    def fill(offset):
        for i in range(2000):
            cache.put((i * 7 + offset) % 50, bytes(i % 60))

    threads = [Thread(target=fill, args=(offset,)) for offset in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cache.num_bytes == sum(len(cache.get(key) or b"") for key in range(50)) <= 1000


def floats(text):
    return np.frombuffer(base64.b64decode(text), "<f4")


def test_keys_beyond_the_cache_are_computed_again():
    small = session_of("random:resnet10_half", cache_megabytes=1, size=256)  # 2 images
    large = session_of("random:resnet10_half", size=256)
    for index in ("0", "7", "0"):
        found, expected = (
            session.search(0, index, CENTRE, neighbours=True, by=0)["images"] for session in (small, large)
        )
        assert [image["photo"] for image in found] == [image["photo"] for image in expected]
        for one, other in zip(found, expected, strict=True):
            assert one["cosine"] == other["cosine"]
            for layer, text in one["maps"].items():
                np.testing.assert_allclose(floats(text), floats(other["maps"][layer]), rtol=0, atol=1e-5)
    assert 0 < small.runs[0]._keys.num_bytes <= 2**20
    assert large.runs[0]._keys.num_bytes > 2**20


def test_boxes_in_pixels_are_inside_and_not_empty():
    assert to_pixels((0.25, 0.5, 0.5, 1.0), (100, 40)) == (25, 20, 50, 40)
    assert to_pixels((0.999, 0.999, 1.0, 1.0), (10, 10)) == (9, 9, 10, 10)
    assert to_pixels((1.0 - 1e-17, 0.0, 1.0, 1e-17), (10, 10)) == (9, 0, 10, 1)


def test_damaged_images_are_left_out(photos):
    (photos / "cats" / "0.jpg").write_bytes(b"damaged")
    session = session_of("random:resnet10_half", data=str(photos), neighbours=24)
    assert session.first_photo == "1"
    found = session.search(0, "1", CENTRE, neighbours=True, by=0)
    assert sorted(int(image["photo"]) for image in found["images"]) == list(range(1, 12))
    with pytest.raises(Unreadable):
        session.gallery.image("0")


class WidePhotos:
    """A source of one large image, without classes."""

    classes = ()

    def __len__(self):
        return 1

    def image(self, index):  # noqa: ARG002
        return Image.fromarray(np.zeros((100, 4000, 3), np.uint8))

    def name(self, index):
        return f"/home/somebody/{index}\udcff<b>.jpg"


def test_large_images_are_reduced_and_paths_are_not_shown():
    about = Gallery(WidePhotos()).describe("0")
    assert (about["width"], about["height"], about["box"]) == (1280, 32, CENTRE)
    assert about["title"] == "0\N{REPLACEMENT CHARACTER}<b>.jpg"


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["random:resnet10_half"], ["random:resnet10_half", "--data"]),
        (["random:resnet10_half", "--data", "nowhere"], ["nowhere"]),
        (["nowhere", "--data", "scenes:4,4"], ["nowhere"]),
        (["random:resnet10_half", "--data", "scenes:4,4", "--port", "70000"], ["port"]),
        (["random:resnet10_half", "--data", "scenes:4,4", "--neighbours", "99"], ["neighbours"]),
        (["random:hiera_tiny_224", "--data", "scenes:4,4", "--size", "100"], ["cannot take images of 100 x 100"]),
        ([], ["RUN"]),
    ],
)
def test_mistakes(scfs, words, parts):
    code, _, err = scfs("explore", *words)
    assert (code, err.count("\n")) == (2, 1)
    for part in parts:
        assert part in err


def test_a_port_in_use(scfs):
    with reserve_port(0) as other:
        other.listen()
        port = other.getsockname()[1]
        code, _, err = scfs("explore", "random:resnet10_half", "--data", "scenes:4,4", "--port", port)
    assert code == 2
    assert f"port {port}" in err


def test_answers_are_sent_at_once():
    """asyncio sets TCP_NODELAY on connections of sockets that name their protocol."""
    with reserve_port(0) as listener:
        assert (listener.getsockname()[0], listener.proto) == ("127.0.0.1", socket.IPPROTO_TCP)


def test_missing_packages_are_named(scfs, monkeypatch):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr("scfs.extras.find_spec", lambda name: None if name == "uvicorn" else find_spec(name))
    code, _, err = scfs("explore", "random:resnet10_half", "--data", "scenes:4,4")
    assert (code, err) == (2, "scfs: scfs explore needs uvicorn: pip install 'scfs[explore]'.\n")


def test_the_command_serves_until_it_is_stopped(trained):
    words = [sys.executable, "-m", "scfs", "explore", trained, "random:resnet10_half", "--sample", "8"]
    with subprocess.Popen(
        [*words, "--workers", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        lines = []
        for line in server.stdout:
            lines.append(line)
            if line.startswith("http://127.0.0.1:"):
                break
        with urllib.request.urlopen(lines[-1].strip(), timeout=60) as page:
            assert b"feature search" in page.read()
        base, _, token = lines[-1].strip().partition("/?token=")
        about = httpx2.get(f"{base}/api/session", headers={"Authorization": f"Bearer {token}"}).json()
        server.send_signal(signal.SIGINT)
        out, err = server.communicate(timeout=60)
    assert any("the run's own images" in line for line in lines)
    assert [run["name"] for run in about["runs"]] == ["trained", "random:resnet10_half"]
    assert about["num_images"] == 12
    assert len(token) >= 32
    assert (server.returncode, out, err) == (0, "", "")
