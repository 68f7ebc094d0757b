"""Sessions and servers of `scfs explore` for tests."""

import base64
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import uvicorn
from rich.console import Console

from scfs.visualize.attention import attend
from scfs.visualize.explore.job import open_session, reserve_port
from scfs.visualize.explore.server import create_app
from scfs.visualize.explore.settings import Explore
from scfs.visualize.explore.state.session import Session, to_pixels

TOKEN = "a-token-of-tests"
HOST = "127.0.0.1:8123"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
BOX = [0.2, 0.3, 0.6, 0.8]
EVERYTHING = ["/", "/page/main.js", "/api/session", "/api/images", "/api/images/0", "/api/images/0/full"]
GOOD = {"run": 0, "photo": "4", "box": BOX}


def session_of(*targets: str, **settings) -> Session:
    """A session on scenes, on the CPU."""
    chosen = {
        "data": "scenes:12,4",
        "size": 64,
        "query_size": 32,
        "sample": 12,
        "workers": 0,
        "device": "cpu",
    } | settings
    return open_session(targets, Explore(**chosen), Console(quiet=True))


@contextmanager
def served(session: Session) -> Iterator[str]:
    """The address of a real server, in a thread of this process."""
    with reserve_port(0) as listener:
        port = listener.getsockname()[1]
        app = create_app(session, token=TOKEN, port=port)
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=2))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{port}"
        server.should_exit = True
        thread.join()


def sentence(response):
    """The one sentence of a refusal."""
    content = response.json()
    assert list(content) == ["detail"]
    assert "Traceback" not in content["detail"]
    assert content["detail"].endswith(".")
    assert "\n" not in content["detail"]
    return content["detail"]


def maps_of(answer, layer):
    """(images, H, W)"""
    rows = [np.frombuffer(base64.b64decode(image["maps"][layer]), "<f4") for image in answer["images"]]
    return np.stack(rows).reshape(len(rows), *answer["shapes"][layer])


def expected_maps(session, photo, box, photos):
    searcher, source = session.runs[0].searcher, session.gallery.source
    image = source.image(int(photo))
    queries = searcher.queries([image.crop(to_pixels(box, image.size))])
    found = attend(queries, searcher.keys([source.image(int(each)) for each in photos]))
    return {layer: maps[0] for layer, maps in found.items()}
