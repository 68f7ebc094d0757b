"""Properties of schedules, for any length and any values."""

import math
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from properties import quick

from scfs.config import Config
from scfs.pretraining.step import schedule_at
from scfs.recipe import check
from scfs.training.schedules import WARMUP_START, cosine, linear_warmup, stepped

VALUES = st.floats(0, 1e3, allow_subnormal=False)
TOTALS = st.integers(1, 120)


def monotone(values, first, last):
    """Whether values go from one to another without turning back, up to rounding."""
    slack = 1e-12 * max(first, last)
    rising = last >= first
    return all((b >= a - slack) if rising else (b <= a + slack) for a, b in pairwise(values))


def between(values, first, last):
    slack = 1e-12 * max(first, last)
    return all(min(first, last) - slack <= value <= max(first, last) + slack for value in values)


@quick
@given(TOTALS, st.integers(0, 150), VALUES, VALUES)
def test_cosine(total, warmup, start, end):
    values = [cosine(step, total, start=start, end=end, warmup_steps=warmup) for step in range(total)]
    rise, fall = values[:warmup], values[warmup:]
    assert between(rise, 0.0, start)
    assert monotone(rise, 0.0, start)
    assert between(fall, start, end)
    assert monotone(fall, start, end)
    if rise:
        assert rise[0] == pytest.approx(start / (warmup + 1))  # a part of the warm-up, and not 0
    if fall:
        assert fall[0] == pytest.approx(start)
    if len(fall) > 1:
        assert fall[-1] == end


@quick
@given(TOTALS, st.integers(0, 150), VALUES, VALUES)
def test_linear_warmup(total, warmup, start, end):
    values = [linear_warmup(step, warmup, start=start, end=end) for step in range(total)]
    assert values[0] == (start if warmup else end)
    assert between(values, start, end)
    assert monotone(values, start, end)
    assert all(value == end for value in values[warmup:])


@quick
@given(TOTALS, st.integers(0, 150), VALUES, st.lists(st.integers(0, 150), max_size=3))
def test_stepped(total, warmup, start, drops):
    values = [stepped(step, start=start, drops=drops, warmup_steps=warmup) for step in range(total)]
    assert between(values, 0.0, start)
    for step, value in enumerate(values):
        fallen = start * math.prod(0.1 for drop in drops if drop <= step)
        if step >= warmup:
            assert value == pytest.approx(fallen)
        else:
            assert WARMUP_START * fallen <= value * (1 + 1e-12)
            assert value <= fallen * (1 + 1e-12)
    parts = [values[low:high] for low, high in pairwise(sorted({0, *drops, warmup, total})) if low < high <= total]
    assert all(monotone(part, min(part), max(part)) for part in parts)


@st.composite
def configs(draw):
    """Settings of schedules, within the bounds of a run."""
    epochs, batch_size = draw(st.integers(1, 8)), draw(st.sampled_from([8, 64, 256, 1000]))
    lr = draw(st.floats(1e-4, 10))
    fraction = st.floats(0, 1)
    method = {"momentum": draw(fraction), "final_momentum": draw(fraction | st.just("same"))}
    method |= {"teacher_temp": draw(st.floats(0.01, 1)), "teacher_temp_start": draw(st.floats(0.01, 1))}
    method |= {"teacher_temp_warmup_epochs": draw(st.integers(0, 12))}
    method |= {"freeze_last_layer_epochs": draw(st.integers(0, 12))}
    optim = {"epochs": epochs, "batch_size": batch_size, "lr": lr}
    optim |= {"final_lr": draw(fraction) * lr * batch_size / 256, "warmup_epochs": draw(fraction) * epochs}
    optim |= {"weight_decay": draw(fraction), "final_weight_decay": draw(fraction | st.just("same"))}
    return check(Config, {"method": method, "optim": optim})


@quick
@given(configs(), st.integers(1, 12))
def test_the_schedules_of_a_run_stay_within_its_settings(config, steps_per_epoch):
    method, optim = config.method, config.optim
    total = optim.epochs * steps_per_epoch
    schedules = [schedule_at(config, step, steps_per_epoch) for step in range(total)]
    final_momentum = method.momentum if method.final_momentum == "same" else method.final_momentum
    final_decay = optim.weight_decay if optim.final_weight_decay == "same" else optim.final_weight_decay
    assert between([each.lr for each in schedules], 0.0, optim.peak_lr)
    assert between([each.momentum for each in schedules], method.momentum, final_momentum)
    assert between([each.weight_decay for each in schedules], optim.weight_decay, final_decay)
    assert between([each.teacher_temp for each in schedules], method.teacher_temp_start, method.teacher_temp)
    frozen = [each.last_layer_frozen for each in schedules]
    assert frozen == [step < method.freeze_last_layer_epochs * steps_per_epoch for step in range(total)]
    assume(total > 1)
    assert (schedules[-1].momentum, schedules[-1].weight_decay) == (final_momentum, final_decay)
    if round(optim.warmup_epochs * steps_per_epoch) < total - 1:
        assert schedules[-1].lr == optim.final_lr


@quick
@given(configs(), st.integers(1, 12), st.data())
def test_a_resumed_run_has_the_schedules_of_an_unbroken_one(config, steps_per_epoch, data):
    total = config.optim.epochs * steps_per_epoch
    unbroken = [schedule_at(config, step, steps_per_epoch) for step in range(total)]
    first = data.draw(st.integers(0, total - 1))
    again = check(Config, config.model_dump(mode="json"))  # as a resumed run reads its settings
    assert [schedule_at(again, step, steps_per_epoch) for step in range(first, total)] == unbroken[first:]
