import math

import pytest

from scfs.pretrain.health import WINDOW, Health

K = 1024


def warnings(steps=400, total=1000, **numbers):
    values = {"loss": 3.0, "teacher_entropy": 0.5, "feature_spread": 0.5, **numbers}
    health = Health(total, math.log(K))
    return [(step, text) for step in range(1, steps + 1) for text in health.check(step, values)]


def test_a_healthy_run_is_left_in_peace():
    assert warnings() == []


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ({"loss": math.log(K), "teacher_entropy": 0.999}, ["ln K", "method.teacher_temp"]),
        ({"feature_spread": 0.005}, ["collapsing", "optim.lr"]),
        ({"loss": 0.01, "teacher_entropy": 0.0}, ["one output wins", "center_momentum"]),
    ],
)
def test_each_collapse_is_told_once_with_a_remedy(numbers, words):
    ((step, text),) = warnings(**numbers)
    assert step == 100  # a tenth of the run
    for word in words:
        assert word in text


def test_the_loss_of_a_sharp_teacher_may_pass_ln_k():
    assert warnings(**{"loss": math.log(K), "teacher_entropy": 0.4}) == []


def test_a_short_run_is_judged_after_a_window():
    ((step, _),) = warnings(total=50, feature_spread=0.0)
    assert step == WINDOW


def test_recovering_after_the_start_is_no_alarm():
    health = Health(1000, math.log(K))
    said = []
    for step in range(1, 300):
        spread = 0.0 if step < 70 else 0.5
        said += health.check(step, {"loss": 3.0, "teacher_entropy": 0.5, "feature_spread": spread})
    assert said == []
