import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from fastapi import HTTPException, Request

Result = TypeVar("Result")
MAX_WAITING = 256
CLIENT_CLOSED = 499  # nginx's: nobody reads the answer


class Turns:
    """Does work in a thread of its own, one piece at a time; requests wait for their turn outside of it.

    So any number of clients start one forward pass at a time, the event loop stays free, and work that nobody waits for
    any more, as while a box is dragged, is left out.
    """

    def __init__(self, name: str):
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        self._turn = asyncio.Lock()
        self._num_waiting = 0

    async def take(self, request: Request, work: Callable[[], Result]) -> Result:
        """The result of some work, when it is its turn."""
        if self._num_waiting >= MAX_WAITING:
            raise HTTPException(503, "Too many requests are waiting; try again in a moment.")
        self._num_waiting += 1
        try:
            async with self._turn:
                if await request.is_disconnected():
                    raise HTTPException(CLIENT_CLOSED, "The client is gone.")
                return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        finally:
            self._num_waiting -= 1

    def close(self) -> None:
        """End the thread when its work is done."""
        self._thread.shutdown(wait=True, cancel_futures=True)
