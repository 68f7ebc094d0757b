import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from scfs.training import interrupt
from scfs.training.interrupt import Interrupt


@pytest.fixture(autouse=True)
def _hangup():
    """The tests themselves may run under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_signals_request_a_stop(number):
    with Interrupt() as stop:
        assert not stop.requested
        os.kill(os.getpid(), number)
        assert stop.requested


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_cluster_managers_may_signal_again(number, monkeypatch):
    monkeypatch.setattr(interrupt, "AGAIN_SECONDS", 0.0)
    with Interrupt() as stop:
        for each in (number, number, signal.SIGTERM):
            os.kill(os.getpid(), each)
            time.sleep(0.01)
        assert stop.requested


def test_a_second_ctrl_c_stops_at_once(monkeypatch):
    with Interrupt() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)  # the same key, sent to the group and again by its leader
        assert stop.requested
        monkeypatch.setattr(interrupt, "AGAIN_SECONDS", 0.0)
        time.sleep(0.01)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_what_is_ignored_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as under nohup
    try:
        with Interrupt() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not stop.requested
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_handlers_are_restored():
    before = [signal.getsignal(number) for number in Interrupt.signals]
    with Interrupt():
        pass
    assert [signal.getsignal(number) for number in Interrupt.signals] == before


def test_the_death_of_torchrun_requests_a_stop(monkeypatch):
    parent = os.getppid()
    for launched in (False, True):
        monkeypatch.setattr(os, "getppid", lambda: parent)
        if launched:
            monkeypatch.setenv("TORCHELASTIC_RUN_ID", "1")
        with Interrupt() as stop:
            assert not stop.requested
            monkeypatch.setattr(os, "getppid", lambda: parent + 1)
            assert stop.requested == launched


def test_other_threads_leave_signals_alone():
    """Only the main thread may handle them."""

    def requested() -> bool:
        with Interrupt() as stop:
            return stop.requested

    with ThreadPoolExecutor() as pool:
        assert pool.submit(requested).result() is False
