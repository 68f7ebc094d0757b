"""The server of `scfs explore` with several clients, slow ones, and ones that are gone."""

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from urllib.parse import urlsplit

import httpx2
import numpy as np
import pytest
from explored import BEARER, EVERYTHING, GOOD, HOST, TOKEN, expected_maps, maps_of, sentence, served, session_of
from fastapi.testclient import TestClient

from scfs.visualize.explore.server import create_app
from scfs.visualize.explore.turns import Turns


@pytest.fixture(scope="module")
def session():
    return session_of("random:resnet10_half")


def test_a_real_server_stops_reading_a_huge_photo(session):
    with (
        served(session) as address,
        socket.create_connection(urlsplit(address).netloc.split(":"), timeout=20) as client,
    ):
        head = f"POST /api/photos HTTP/1.1\r\nHost: {urlsplit(address).netloc}\r\nAuthorization: Bearer {TOKEN}\r\n"
        client.sendall(f"{head}Content-Length: 99999999999\r\n\r\n".encode())
        assert client.recv(4096).startswith(b"HTTP/1.1 413")


def test_the_server_listens_on_this_machine_only(session):
    with served(session) as address:
        port = urlsplit(address).port
        assert httpx2.get(f"{address}/api/session", headers=BEARER).status_code == 200
        with pytest.raises(OSError, match="refused"), socket.create_connection(("127.0.0.2", port), timeout=5):
            pass


def test_fifty_clients_at_a_time_get_their_own_answers(session):
    rng = np.random.default_rng(0)
    corners = rng.uniform(0, 0.5, (50, 2))
    asked = [{"run": 0, "photo": str(i % 12), "box": [x, y, x + 0.4, y + 0.3]} for i, (x, y) in enumerate(corners)]
    with served(session) as address, ThreadPoolExecutor(50) as clients:

        def ask(body):
            with httpx2.Client(timeout=60) as client:
                return client.post(f"{address}/api/search", json=body, headers=BEARER)

        responses = list(clients.map(ask, asked))
    for body, response in zip(asked, responses, strict=True):
        assert response.status_code == 200
        answer = response.json()
        photos = [image["photo"] for image in answer["images"]]
        expected = expected_maps(session, body["photo"], body["box"], photos)["layer2"]
        np.testing.assert_allclose(maps_of(answer, "layer2"), expected, rtol=0, atol=1e-5)


def test_other_requests_do_not_wait_for_a_network(session, monkeypatch):
    started, finish = Event(), Event()

    def search(*_, **__):
        started.set()
        assert finish.wait(60)
        return {"images": []}

    monkeypatch.setattr(session, "search", search)
    with served(session) as address, ThreadPoolExecutor(1) as clients:
        waiting = clients.submit(httpx2.post, f"{address}/api/search", json=GOOD, headers=BEARER, timeout=60)
        assert started.wait(60)
        for path in EVERYTHING:
            assert httpx2.get(f"{address}{path}", headers=BEARER, timeout=30).status_code == 200
        assert not waiting.done()
        finish.set()
        assert waiting.result().json() == {"images": []}


class Client:
    """A request whose client is there or gone."""

    def __init__(self, is_gone):
        self.is_gone = is_gone

    async def is_disconnected(self):
        return self.is_gone


def test_work_is_done_one_piece_at_a_time_and_not_for_clients_that_are_gone(monkeypatch):
    monkeypatch.setattr("scfs.visualize.explore.turns.MAX_WAITING", 20)
    running, done = [], []

    def work(number):
        running.append(number)
        assert running == [number]
        done.append(running.pop())
        return number

    async def all_at_once():
        turns = Turns("test")
        asked = [turns.take(Client(is_gone=i % 2 == 1), lambda i=i: work(i)) for i in range(24)]
        results = await asyncio.gather(*asked, return_exceptions=True)
        turns.close()
        return [getattr(each, "status_code", each) for each in results]

    with ThreadPoolExecutor(1) as thread:  # a browser of other tests may have its loop in this one
        results = thread.submit(asyncio.run, all_at_once()).result()
    assert results == [*(499 if i % 2 else i for i in range(20)), *[503] * 4]
    assert done == list(range(0, 20, 2))


def test_a_failure_of_the_server_is_a_sentence(session, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("secret")

    monkeypatch.setattr(session, "search", fail)
    app = create_app(session, token=TOKEN, port=8123)
    with TestClient(app, base_url=f"http://{HOST}", headers=BEARER, raise_server_exceptions=False) as client:
        response = client.post("/api/search", json=GOOD)
    assert response.status_code == 500
    assert "secret" not in sentence(response)
