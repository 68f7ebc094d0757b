import signal
from typing import Any


class Interrupt:
    """Turns Ctrl-C and SIGTERM into a request to stop, so that the current step is finished and saved.

    A second signal stops at once.
    """

    signals = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self.requested = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Interrupt":
        self._before = {number: signal.signal(number, self._on_signal) for number in self.signals}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on_signal(self, *_: object) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
