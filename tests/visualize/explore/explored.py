"""Sessions and servers of `scfs explore` for tests."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from rich.console import Console

from scfs.visualize.explore.job import open_session, reserve_port
from scfs.visualize.explore.server import create_app
from scfs.visualize.explore.settings import Explore
from scfs.visualize.explore.state.session import Session

TOKEN = "a-token-of-tests"


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
