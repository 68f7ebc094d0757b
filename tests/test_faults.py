"""A sample of `make faults`."""

import random

import pytest

from faults.__main__ import FAULTS, line, main, write
from faults.launch import Outcome


@pytest.mark.parametrize(
    "name",
    [
        "a loader worker killed, one process",
        "a run resumed while it trains",
    ],
)
def test_survived(tmp_path, name):
    outcome = FAULTS[name][1](tmp_path / "run", random.Random(1))
    assert outcome.survived, outcome.note


def test_an_unknown_fault_is_refused(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["faults", "--only", "no such fault"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert "no fault has one of the words no such fault" in capsys.readouterr().err


def test_rows_that_were_not_tried_again_are_kept(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("before <!-- table --><!-- table --> after")
    first, second, *_ = FAULTS
    write(page, {second: line(second, [Outcome(True)])})
    write(page, {first: line(first, [Outcome(False)])})
    write(page, {second: line(second, [Outcome(True), Outcome(True)])})
    text = page.read_text()
    assert text.startswith("before <!-- table -->")
    assert text.endswith("<!-- table --> after")
    assert text.index(f"| {first} | 1 | 0 |") < text.index(f"| {second} | 2 | 2 |")


def test_a_row_of_the_table():
    outcomes = [Outcome(True, 1.0, 0), Outcome(False, 3.0, 2), Outcome(True, 2.0, 1)]
    assert line("x", outcomes) == ["x", "3", "2", "2 at most", "2.0 (at most 3.0)"]
    assert line("x", [Outcome(True)]) == ["x", "1", "1", "", ""]
