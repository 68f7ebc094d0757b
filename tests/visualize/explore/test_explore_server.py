"""The server of `scfs explore`: who may talk to it, what it accepts, and that its numbers are those of `attend`."""

import io
import json
import re
import struct
import zlib

import numpy as np
import pytest
from explored import BEARER, BOX, EVERYTHING, GOOD, HOST, TOKEN, expected_maps, maps_of, sentence, session_of
from fastapi.testclient import TestClient
from PIL import Image

from scfs.visualize.explore.guard import MAX_UPLOAD
from scfs.visualize.explore.server import create_app
from scfs.visualize.explore.state.gallery import MAX_OWN


@pytest.fixture(scope="module")
def session():
    return session_of("random:resnet10_half")


@pytest.fixture(scope="module")
def app(session):
    return create_app(session, token=TOKEN, port=8123)


@pytest.fixture
def stranger(app):
    """A client that does not know the token. A failure of the server raises."""
    return TestClient(app, base_url=f"http://{HOST}")


@pytest.fixture
def client(app):
    return TestClient(app, base_url=f"http://{HOST}", headers=BEARER)


def jpeg(width=40, height=30):
    buffer = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(buffer, "JPEG")
    return buffer.getvalue()


def bomb():
    """A PNG of a few kilobytes that says, and holds, 30000 x 30000 pixels."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 30000, 30000, 1, 0, 0, 0, 0)
    rows = zlib.compress(bytes(3751 * 100), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


@pytest.mark.parametrize("path", EVERYTHING)
def test_without_the_token_everything_is_refused(stranger, client, path):
    wrong = [{"Authorization": "Bearer another"}, {"Cookie": "scfs-explore-8123=another"}]
    for options in ({}, {"params": {"token": "another"}}, *({"headers": headers} for headers in wrong)):
        response = stranger.request("GET", path, **options)
        assert response.status_code == 403
        assert "token" in sentence(response)
        assert "set-cookie" not in response.headers
    assert client.get(path).status_code == 200


def test_the_address_gives_a_cookie_that_suffices(stranger):
    response = stranger.get("/", params={"token": TOKEN})
    assert response.status_code == 200
    assert "text/html" in response.headers["content-type"]
    assert response.headers["set-cookie"] == f"scfs-explore-8123={TOKEN}; Path=/; HttpOnly; SameSite=Strict"
    assert stranger.get("/api/session").status_code == 200
    assert stranger.post("/api/search", json={"run": 0, "photo": "1", "box": BOX}).status_code == 200


def test_the_token_in_an_address_opens_the_page_only(stranger):
    assert stranger.get("/api/session", params={"token": TOKEN}).status_code == 403
    assert stranger.post("/", params={"token": TOKEN}).status_code == 403


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8123", "127.0.0.1", "127.0.0.1:80", "0.0.0.0:8123", ""])
def test_foreign_hosts_are_refused(client, host):
    assert client.get("/api/session", headers={"Host": host}).status_code == 403


@pytest.mark.parametrize("origin", ["null", "http://evil.example", "https://127.0.0.1:8123", "http://127.0.0.1:9"])
def test_foreign_origins_are_refused(client, origin):
    for path in ("/", "/api/images/0/full"):
        assert client.get(path, headers={"Origin": origin}).status_code == 403
    assert client.post("/api/photos", content=jpeg(), headers={"Origin": origin}).status_code == 403


def test_own_origins_are_accepted(client):
    for host in (HOST, "localhost:8123"):
        headers = {"Host": host, "Origin": f"http://{host}"}
        assert client.get("/api/session", headers=headers).status_code == 200


@pytest.mark.parametrize("path", [*EVERYTHING, "/nothing", "/api/images/99", "/docs", "/openapi.json"])
def test_headers_of_every_answer(client, stranger, path):
    for response in (client.get(path), stranger.get(path)):
        assert response.headers["cache-control"] == "no-store"
        assert response.headers["x-content-type-options"] == "nosniff"
        policy = response.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy


@pytest.mark.parametrize(
    "path",
    [
        "/page/../job.py",
        "/page/..%2fjob.py",
        "/page/%2e%2e/settings.py",
        "/page//etc/passwd",
        "/page/%2fetc%2fpasswd",
        "/api/images/..%2f..%2fetc%2fpasswd/full",
        "/api/images/%2fetc%2fpasswd",
        "/api/images/12",
        "/api/images/-1",
        "/api/images/1e3",
        "/api/images/%D9%A1",
        "/api/images/own-1",
        "/api/images/99999999999999999999",
        "/docs",
        "/openapi.json",
    ],
)
def test_unknown_and_hostile_paths(client, path):
    response = client.get(path)
    assert response.status_code in (404, 422)
    sentence(response)


def test_images_by_index(client, session):
    pixels = Image.open(io.BytesIO(client.get("/api/images/3/full").content))
    truth = session.gallery.source.image(3)
    assert pixels.size == truth.size
    difference = np.abs(np.asarray(pixels, np.float32) - np.asarray(truth, np.float32)).mean()
    assert difference < 8  # JPEG's
    assert max(Image.open(io.BytesIO(client.get("/api/images/3/thumbnail").content)).size) == 112
    assert client.get("/api/images/3/huge").status_code == 422
    rows = client.get("/api/images", params={"first": 10, "count": 5}).json()
    assert [row["photo"] for row in rows] == ["10", "11"]
    assert rows[0]["title"] == session.gallery.source.classes[session.gallery.source.label(10)]
    assert client.get("/api/images", params={"count": 1000}).status_code == 422


def test_the_first_box_of_a_scene_is_its_object(client, session):
    about = client.get("/api/images/5").json()
    box = session.gallery.source.objects(5).boxes[0] / 128
    assert about["box"] == pytest.approx(box.tolist())
    assert (about["width"], about["height"]) == (128, 128)


def test_attention_is_that_of_attend(client, session):
    answer = client.post("/api/search", json={"run": 0, "photo": "4", "box": BOX}).json()
    photos = [image["photo"] for image in answer["images"]]
    assert photos[0] == "4"
    assert len({*photos}) == len(photos) == 7
    for layer, maps in expected_maps(session, "4", BOX, photos).items():
        np.testing.assert_allclose(maps_of(answer, layer), maps, rtol=0, atol=1e-5)
    cosines = [image["cosine"] for image in answer["images"][1:]]
    assert cosines == sorted(cosines, reverse=True)


def test_the_image_alone(client):
    answer = client.post("/api/search", json={"run": 0, "photo": "4", "box": BOX, "neighbours": False}).json()
    assert [image["photo"] for image in answer["images"]] == ["4"]


@pytest.mark.parametrize(
    "body",
    [
        GOOD | {"box": [0.5, 0.1, 0.5, 0.6]},
        GOOD | {"box": [0.6, 0.1, 0.2, 0.6]},
        GOOD | {"box": [-0.1, 0.1, 0.2, 0.6]},
        GOOD | {"box": [0.1, 0.1, 0.2, 1.6]},
        GOOD | {"box": [0.1, 0.1, 0.2]},
        GOOD | {"box": [0.1, 0.1, 0.2, 0.3, 0.4]},
        GOOD | {"box": ["a", 0.1, 0.2, 0.6]},
        GOOD | {"box": None},
        GOOD | {"box": [float("nan"), 0.1, 0.2, 0.6]},
        GOOD | {"box": [0.1, 0.1, float("inf"), 0.6]},
        GOOD | {"run": 1},
        GOOD | {"run": -1},
        GOOD | {"by": 7},
        GOOD | {"run": 10**30},
        GOOD | {"run": "0"},
        GOOD | {"photo": 4},
        GOOD | {"photo": "12"},
        GOOD | {"photo": "own-9"},
        GOOD | {"photo": "../../etc/passwd"},
        GOOD | {"photo": "4" * 5000},
        GOOD | {"more": 1},
        {"run": 0},
        [],
        7,
        None,
    ],
)
def test_malformed_searches(client, body):
    response = client.post("/api/search", content=json.dumps(body), headers={"Content-Type": "application/json"})
    assert response.status_code in (404, 422)
    sentence(response)


@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe", b"[" * 10000, b'{"run": 0, "run"'])
def test_bodies_that_are_not_json(client, body):
    response = client.post("/api/search", content=body, headers={"Content-Type": "application/json"})
    assert 400 <= response.status_code < 500
    sentence(response)


def test_a_search_of_too_many_bytes(client):
    body = json.dumps(GOOD) + " " * 20000
    assert client.post("/api/search", content=body, headers={"Content-Type": "application/json"}).status_code == 413


def test_the_smallest_box_is_a_pixel(client):
    for box in ([0, 0, 1e-9, 1e-9], [1 - 1e-9, 1 - 1e-9, 1, 1]):
        assert client.post("/api/search", json=GOOD | {"box": box}).status_code == 200


def test_a_photo_of_ones_own(client):
    response = client.post("/api/photos", content=jpeg(90, 60))
    assert response.status_code == 201
    about = response.json()
    assert (about["width"], about["height"], about["title"]) == (90, 60, "your photo")
    assert re.fullmatch("own-[0-9]+", about["photo"])
    answer = client.post("/api/search", json=GOOD | {"photo": about["photo"]}).json()
    assert len(answer["images"]) == 7
    assert client.get(f"/api/images/{about['photo']}/full").headers["content-type"] == "image/jpeg"


def test_photos_are_reduced_and_only_the_last_are_kept(client):
    names = [client.post("/api/photos", content=jpeg(1500, 10)).json() for _ in range(MAX_OWN + 1)]
    assert names[0]["width"] == 1280
    for path in ("", "/thumbnail"):
        assert "add it again" in sentence(client.get(f"/api/images/{names[0]['photo']}{path}"))
        assert client.get(f"/api/images/{names[-1]['photo']}{path}").status_code == 200


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "known format"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n", "known format"),
        (jpeg(400, 300)[:2000], "cut short"),
        (bomb(), "pixels"),
    ],
)
def test_photos_that_are_none(client, data, reason):
    response = client.post("/api/photos", content=data)
    assert response.status_code == 422
    assert reason in sentence(response)


def test_huge_photos_are_refused_by_their_length_and_while_they_arrive(client):
    assert client.post("/api/photos", content=bytes(MAX_UPLOAD + 1)).status_code == 413
    taken = 0

    def endless():
        nonlocal taken
        while taken < 4 * MAX_UPLOAD:
            taken += 2**20
            yield bytes(2**20)

    response = client.post("/api/photos", content=endless())  # without a Content-Length
    assert response.status_code == 413
    assert "32 MB" in sentence(response)
