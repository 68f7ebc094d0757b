"""A sample of `make faults`."""

import random

import pytest

from faults.__main__ import FAULTS, line
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


def test_a_row_of_the_table():
    outcomes = [Outcome(True, 1.0, 0), Outcome(False, 3.0, 2), Outcome(True, 2.0, 1)]
    assert line("x", outcomes) == ["x", "3", "2", "2 at most", "2.0 (at most 3.0)"]
    assert line("x", [Outcome(True)]) == ["x", "1", "1", "", ""]
