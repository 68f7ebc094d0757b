"""Settings that would have no effect are refused."""

import pytest

from scfs.errors import UserError
from scfs.evaluate.segment.settings import Segment
from scfs.recipe import check
from scfs.visualize.attend.settings import Attend
from scfs.visualize.overaug.settings import Overaug


@pytest.mark.parametrize(
    ("model", "flags", "unused", "with_what"),
    [
        (Segment, {"method": "neighbours", "lr": 0.5}, "lr", "--method neighbours"),
        (Segment, {"method": "linear", "k": 30}, "k", "--method linear"),
        (Attend, {"show": "jigsaw", "views": 9}, "views", "--show jigsaw"),
        (Attend, {"show": "box", "box": [0, 0, 1, 1], "scale": 0.3}, "scale", "--show box"),
        (Attend, {"show": "components", "scales": "own"}, "scales", "--show components"),
        (Attend, {"images": "a.jpg", "count": 9}, "count", "--images"),
        (Attend, {"score": True, "scales": "own"}, "scales", "--score"),
        (Overaug, {"audit": True, "show": 3}, "show", "--audit"),
    ],
)
def test_refused(model, flags, unused, with_what):
    with pytest.raises(UserError, match=f"^--{unused} has no effect with {with_what}; omit one of them.$"):
        check(model, {}, flags)
    check(model, {}, {name: value for name, value in flags.items() if name != unused})


def test_accepted_where_they_have_an_effect():
    check(Segment, {}, {"method": "both", "lr": 0.5, "k": 20})
    check(Attend, {}, {"show": "other", "views": 9, "scale": 0.2, "scales": "own", "count": 3})
    check(Attend, {}, {"score": True, "views": 9, "scale": 0.2})
