"""A sample of damaged files of every kind; `python tests/fuzz.py` tries thousands."""

import pytest
from fuzz import KINDS, Outcome, _try, run

from scfs.errors import UserError

COUNTS = {"images": 40, "tars": 25, "parquets": 20, "checkpoints": 20}


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_files(kind):
    if kind == "parquets":
        pytest.importorskip("pyarrow")
    outcome = run(kind, COUNTS[kind])
    assert outcome.tracebacks + outcome.slow == []
    assert outcome.tried == outcome.survived == COUNTS[kind]
    assert outcome.sentences > COUNTS[kind] / 4


def test_outcomes_are_counted(tmp_path):
    outcome = Outcome()
    for answer in (True, False, UserError("why"), UserError("two\nlines"), KeyError("bug")):

        def read(_, answer=answer):
            if isinstance(answer, Exception):
                raise answer
            return answer

        _try(read, tmp_path, "case", outcome)
    assert (outcome.tried, outcome.results, outcome.sentences, len(outcome.tracebacks)) == (5, 1, 2, 2)
