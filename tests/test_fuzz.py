"""A sample of damaged files of every kind; `make faults` tries thousands."""

import random
import time

import pytest

from faults import fuzz
from faults.fuzz import KINDS, REFUSED, damaged, try_to_read
from scfs.errors import UserError

COUNTS = {"image": 40, "tar": 25, "parquet": 20, "checkpoint": 20}


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_files(tmp_path, kind):
    if kind == "parquet":
        pytest.importorskip("pyarrow")
    outcomes = [damaged(tmp_path / str(i), random.Random(i), kind=kind) for i in range(COUNTS[kind])]
    assert [each.note for each in outcomes if not each.survived] == []
    assert sum(each.note == REFUSED for each in outcomes) > COUNTS[kind] / 4


@pytest.mark.parametrize(
    ("answer", "survived"),
    [(True, True), (False, True), (UserError("why"), True), (UserError("two\nlines"), False), (KeyError("bug"), False)],
)
def test_what_counts_as_survived(tmp_path, answer, survived):
    def read(_):
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert try_to_read(read, tmp_path).survived is survived


def test_slow_files_count_as_failures(tmp_path, monkeypatch):
    monkeypatch.setattr(fuzz, "SLOW", 0.01)
    assert not try_to_read(lambda _: time.sleep(0.02) or True, tmp_path).survived
