import tracemalloc
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scfs.data import order
from scfs.data.loader import StepSampler
from scfs.data.order import MAX_LISTED, EpochOrder, fixed_sample

MANY = 10_000_000


def computed(seed, epoch, num_images):
    """An order that is computed, however few images there are."""
    with patch.object(order, "MAX_LISTED", 0):
        return EpochOrder(seed, epoch, num_images)


@given(st.integers(1, 3000), st.integers(0, 2**63 - 1), st.integers(0, 1000))
@settings(max_examples=60, deadline=None)
def test_every_index_comes_once(num_images, seed, epoch):
    assert sorted(computed(seed, epoch, num_images)[:]) == list(range(num_images))


@given(st.integers(1, 2**40), st.data())
@settings(max_examples=60, deadline=None)
def test_indices_of_large_sets_are_distinct_and_in_range(num_images, data):
    first = data.draw(st.integers(0, num_images - 1))
    positions = range(first, min(first + 500, num_images))
    indices = computed(7, 1, num_images)[first : first + 500]
    assert len({*indices}) == len(indices) == len(positions)
    assert 0 <= min(indices) <= max(indices) < num_images
    assert indices[-1] == computed(7, 1, num_images)[positions[-1]]


def test_few_images_keep_the_order_of_runs_that_were_recorded():
    expected = np.random.default_rng(np.random.SeedSequence((3, 2))).permutation(1000).tolist()
    assert EpochOrder(3, 2, 1000)[:] == expected
    assert EpochOrder(3, 2, 1000)[100:103] == expected[100:103]
    assert MAX_LISTED > 1_281_167  # ImageNet


def test_orders_differ_by_epoch_and_seed():
    orders = [tuple(computed(seed, epoch, 100)[:]) for seed in range(4) for epoch in range(4)]
    assert len({*orders}) == 16
    assert computed(1, 2, 100)[:] == list(orders[6])


def test_a_computed_order_looks_random():
    """Counts of images by tenth of the order and tenth of the set; for random ones, chi-square is 81 with spread 13."""
    count = 100_000
    indices = np.array(computed(0, 0, count)[:])
    tenths = np.arange(count) * 10 // count
    counts = np.histogram2d(tenths, indices * 10 // count, bins=10)[0]
    assert 40 < ((counts - 1000) ** 2 / 1000).sum() < 130
    steps = np.diff(indices)
    assert (np.abs(steps) == 1).sum() < 15  # of 100,000; two expected
    assert abs(np.corrcoef(indices[:-1], indices[1:])[0, 1]) < 0.02


@pytest.mark.parametrize("start_step", [1, 7, 12])
def test_a_resumed_run_gets_the_rest(monkeypatch, start_step):
    monkeypatch.setattr(order, "MAX_LISTED", 10)
    whole = list(StepSampler(101, 10, 2, seed=4))
    assert whole != list(StepSampler(101, 10, 2, seed=5))
    assert list(StepSampler(101, 10, 2, seed=4, start_step=start_step)) == whole[start_step:]
    shards = [list(StepSampler(101, 10, 2, seed=4, rank=rank, world_size=2)) for rank in (0, 1)]
    assert [left + right for left, right in zip(*shards, strict=True)] == whole


def test_ten_million_images_take_no_list():
    tracemalloc.start()
    sampler = iter(StepSampler(MANY, 256, 1, seed=0))
    batch = next(sampler)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len({index for _, index in batch}) == 256
    assert peak < 1_000_000


def test_a_fixed_sample():
    assert fixed_sample(0, 5, 10).tolist() == list(range(5))
    assert fixed_sample(3, 1000, 10).tolist() == sorted(np.random.default_rng(3).permutation(1000)[:10].tolist())
    many = fixed_sample(0, MANY, 10).tolist()
    assert many == sorted({*many})
    assert len(many) == 10
    assert max(many) > MANY / 2
