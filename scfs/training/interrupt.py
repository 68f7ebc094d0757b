import os
import signal
import time
from threading import current_thread, main_thread
from typing import Any

from scfs.portable import STOP_SIGNALS

AGAIN_SECONDS = 0.5  # two signals closer together than this are one request, sent to a group and to its members


class Interrupt:
    """Turns signals into a request to stop, so that the current step is finished and saved.

    These are Ctrl-C, SIGTERM, SIGHUP (the terminal was closed) and SIGUSR1 (Slurm's warning before the end of a job).
    Only a second Ctrl-C stops at once: cluster managers and torchrun send their signals more than once. Under torchrun
    it is also a request to stop that torchrun itself was killed, since nobody would end its processes. In a thread
    other than the main one, signals are left alone.
    """

    signals = STOP_SIGNALS

    def __init__(self) -> None:
        self._requested_at: float | None = None
        self._before: dict[int, Any] = {}
        self._agent = os.getppid() if "TORCHELASTIC_RUN_ID" in os.environ else None

    @property
    def requested(self) -> bool:
        """Whether to stop after the current step."""
        return self._requested_at is not None or (self._agent is not None and os.getppid() != self._agent)

    def __enter__(self) -> "Interrupt":
        for number in self.signals if current_thread() is main_thread() else ():  # only there are handlers allowed
            hung_up = number == getattr(signal, "SIGHUP", None)
            if not (hung_up and signal.getsignal(number) is signal.SIG_IGN):  # as under nohup
                self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, _: object) -> None:
        now = time.monotonic()
        if self._requested_at is None:
            self._requested_at = now
        elif number == signal.SIGINT and now - self._requested_at > AGAIN_SECONDS:
            raise KeyboardInterrupt
