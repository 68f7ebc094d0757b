"""In a notebook, training shows one line, which is replaced."""

import sys
import types

import pytest

from scfs.console import LoggingConsole
from scfs.training import progress
from scfs.training.notebook import in_notebook
from scfs.training.progress import ProgressDisplay


class Handle:
    def __init__(self, shown):
        self.shown = shown

    def update(self, content, raw):
        self.shown.append(("update", content["text/plain"], raw))


@pytest.fixture
def shown(monkeypatch) -> list[tuple[str, str, bool]]:
    """What is displayed, in a process that looks like a kernel."""
    calls = []

    def display(content, raw, display_id):
        calls.append(("display", content["text/plain"], raw and display_id))
        return Handle(calls)

    kernel = types.SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: kernel))
    monkeypatch.setitem(sys.modules, "IPython.display", types.SimpleNamespace(display=display))
    return calls


def test_one_line_is_updated(shown, monkeypatch, capsys):
    monkeypatch.setattr(progress, "NOTEBOOK_SECONDS", 0.0)
    with ProgressDisplay(LoggingConsole(), total_steps=4, first_step=0) as display:
        display.advance(1)
        display.show("step 1/4", {"loss": 2.0})
        display.advance(4)
        display.show("step 4/4", {"loss": 1.0}, final=True)
    assert [(kind, text.partition("  left")[0], raw) for kind, text, raw in shown] == [
        ("display", "25%  step 1/4  loss 2", True),
        ("update", "100%  step 4/4  loss 1", True),
    ]
    assert capsys.readouterr() == ("", "")


def test_updates_are_not_too_frequent(shown):
    display = ProgressDisplay(LoggingConsole(), total_steps=1000, first_step=0)
    for step in range(1, 1001):
        display.advance(step)
        display.show(f"step {step}", {}, final=step == 1000)
    assert len(shown) < 500
    assert shown[-1][1].startswith("100%  step 1000")


def test_ranks_other_than_zero_show_nothing(shown, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    ProgressDisplay(LoggingConsole(), total_steps=1, first_step=0).show("step 1", {}, final=True)
    assert shown == []


def test_a_program_is_no_notebook(monkeypatch):
    assert not in_notebook()
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: object()))  # in a terminal
    assert not in_notebook()
