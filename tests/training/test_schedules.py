import math
from itertools import pairwise

import pytest

from scfs.training.schedules import cosine, linear_warmup


def test_cosine_with_warmup():
    values = [cosine(step, 100, start=1.0, end=0.1, warmup_steps=10) for step in range(100)]
    assert values[:10] == pytest.approx([(step + 1) / 11 for step in range(10)])
    assert values[10] == 1.0
    assert values[-1] == pytest.approx(0.1)
    for step in range(10, 100):
        assert values[step] == pytest.approx(0.1 + 0.45 * (1 + math.cos(math.pi * (step - 10) / 89)))
    assert all(a > b for a, b in pairwise(values[10:]))


def test_rising_cosine():
    values = [cosine(step, 50, start=0.996, end=1.0) for step in range(50)]
    assert values[0] == pytest.approx(0.996)
    assert values[-1] == 1.0
    assert values == sorted(values)


def test_one_step():
    assert cosine(0, 1, start=2.0, end=1.0) == 2.0


def test_linear():
    assert linear_warmup(0, 50, start=0.04, end=0.07) == 0.04
    assert linear_warmup(25, 50, start=0.04, end=0.07) == pytest.approx(0.055)
    assert linear_warmup(50, 50, start=0.04, end=0.07) == linear_warmup(99, 50, start=0.04, end=0.07) == 0.07
    assert linear_warmup(0, 0, start=0.04, end=0.07) == 0.07
