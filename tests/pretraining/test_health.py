import math

import pytest

from scfs.pretraining.health import WINDOW, Health

K = 1024
HEALTHY = {
    "loss": 3.0,
    "loss/view": 3.0,
    "entropy/view": 0.8,
    "spread/view": 0.5,
    "loss/search/layer4": 2.0,
    "entropy/search/layer4": 0.7,
    "spread/search/layer4": 0.5,
    "feature_spread": 0.5,
    "pixel_spread": 0.6,
    "separation": 0.1,
    "used/view": 0.95 * K,
    "used/search/layer4": 0.9 * K,
    "agreement": 0.9,
    "momentum": 0.996,
}


def warnings(steps=400, total=1000, outputs=K, **numbers):
    values = {**HEALTHY, **numbers}
    health = Health(total, lambda _: outputs)
    return [(step, text) for step in range(1, steps + 1) for text in health.check(step, values)]


def test_a_healthy_run_gets_no_warnings():
    assert warnings() == []


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ({"loss/view": math.log(K), "entropy/view": 0.98}, ["head of 'view' is flat", "method.teacher_temp"]),
        ({"entropy/search/layer4": 0.99}, ["head of 'search/layer4' is flat", "method.objective"]),
        ({"feature_spread": 0.005}, ["collapsing", "optim.lr"]),
        ({"spread/view": 0.005}, ["head of 'view'", "same output for all images"]),
        ({"loss/view": 0.01, "entropy/view": 0.0, "used/view": 1.0}, ["'view'", "one output wins", "center_momentum"]),
        ({"loss/view": 1.6 * math.log(K)}, ["'view'", "above that of a uniform guess", "optim.lr"]),
        ({"used/view": K**0.8}, ["'view' says nothing about the image", "center_momentum"]),
        ({"agreement": 0.999999}, ["teacher's features are those of the student", "method.momentum"]),
        ({"momentum": 1.0}, ["teacher does not move", "Lower method.momentum"]),
        ({"pixel_spread": 0.001}, ["a single colour each", "--dry-run"]),
        ({"separation": 0.001}, ["hardly more alike than views of different images", "scfs check-data"]),
    ],
)
def test_each_kind_of_collapse_is_reported_once_with_a_remedy(numbers, words):
    ((step, text),) = warnings(**numbers)
    assert step == 100  # a tenth of the run
    for word in words:
        assert word in text


def test_with_a_sharp_teacher_the_loss_may_exceed_ln_k():
    assert warnings(**{"loss/view": math.log(K), "entropy/view": 0.4}) == []


def test_a_certain_teacher_that_tells_images_apart_is_no_collapse():
    """Losses at the layers are scaled by their weight, so that a low one alone means little."""
    assert warnings(**{"loss/search/layer4": 0.05, "entropy/search/layer4": 0.01, "used/search/layer4": 120.0}) == []


def test_flat_does_not_depend_on_the_number_of_outputs():
    """Random weights at the paper's temperature have an entropy of 0.96 with 65,536 outputs: not flat."""
    used = {"used/view": 65000, "used/search/layer4": 60000}
    assert warnings(outputs=65536, **{"entropy/view": 0.964, **used}) == []
    assert warnings(outputs=64, **{"entropy/view": 0.964}) != []


def test_heads_without_a_softmax_are_never_flat_or_constant():
    assert warnings(outputs=None, **{"loss/view": 0.0, "entropy/view": 1.0}) == []


def test_a_short_run_is_checked_after_one_window():
    ((step, _),) = warnings(total=50, feature_spread=0.0)
    assert step == WINDOW


def test_recovery_after_the_start_gives_no_warning():
    health = Health(1000, lambda _: K)
    found = []
    for step in range(1, 300):
        found += health.check(step, {**HEALTHY, "feature_spread": 0.0 if step < 70 else 0.5})
    assert found == []


def test_a_momentum_that_rises_to_1_is_no_frozen_teacher():
    assert warnings(momentum=1 - 1e-12) == []


def test_one_dead_head_is_not_hidden_by_healthy_ones():
    ((_, text),) = warnings(**{"used/search/layer4": K**0.7, "entropy/search/layer4": 0.7})
    assert "search/layer4" in text


def test_equal_features_are_not_reported_as_indistinct_too():
    ((_, text),) = warnings(feature_spread=0.001, separation=0.0)
    assert "collapsing" in text


def test_networks_whose_student_gives_the_targets_have_no_teacher_to_judge():
    numbers = {name: value for name, value in HEALTHY.items() if name != "agreement"} | {"momentum": 1.0}
    health = Health(1000, lambda _: K)
    assert [text for step in range(1, 200) for text in health.check(step, numbers)] == []


def test_a_falling_rank_is_reported_once():
    health = Health(1000, lambda _: K)
    ranks = {0: 60.0, 50: 20.0, 200: 40.0, 300: 30.0, 400: 25.0}  # the second is too early to judge
    found = [(step, text) for step, rank in ranks.items() for text in health.check_rank(step, rank)]
    assert [(step, "fell from 60.0 to 30.0" in text, "optim.lr" in text) for step, text in found] == [(300, True, True)]


def test_a_resumed_run_compares_with_the_rank_before_training():
    assert not list(Health(1000, lambda _: K).check_rank(500, 30.0))  # the first that it sees
    [text] = Health(1000, lambda _: K, first_rank=60.0).check_rank(500, 30.0)
    assert "fell from 60.0 to 30.0" in text
