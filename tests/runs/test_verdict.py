import math

import pytest

from scfs.runs.metric import Metric
from scfs.runs.metrics_log import metrics_row
from scfs.runs.verdict import judge, judge_task, means_at, total_steps

K = 256
STEPS_PER_EPOCH, EPOCHS = 100, 10
HEALTHY = {
    "loss": 3.0,
    "loss/view": 3.0,
    "entropy/view": 0.6,
    "spread/view": 0.5,
    "feature_spread": 0.5,
}


def log(steps=1000, every=10, **numbers):
    """Rows of a run whose numbers are constant, or functions of the step."""
    values = {**HEALTHY, **numbers}
    return [
        {
            "step": step,
            "epoch": step / STEPS_PER_EPOCH,
            **{name: value(step) if callable(value) else value for name, value in values.items()},
        }
        for step in range(every, steps + 1, every)
    ]


def scored(rows, **values):
    """The rows with metrics at the start and at the end."""

    def metrics(end):
        if "rank" in values:
            yield Metric("RankMe", values["rank"][end], unit="")
        if "knn" in values:
            value = values["knn"][end]
            yield Metric("k-NN top-1", value, (value - 0.05, value + 0.05))

    last = rows[-1]
    return [metrics_row(0, 0.0, [*metrics(0)]), *rows, metrics_row(last["step"], last["epoch"], [*metrics(1)])]


def verdict(rows, epochs=EPOCHS, outputs=K):
    return judge(rows, epochs=epochs, num_outputs=lambda _: outputs)


def test_healthy():
    found = verdict(scored(log(), rank=(20, 60), knn=(0.2, 0.5)))
    assert (found.level, found.headline, found.warnings) == ("good", "Healthy", [])
    assert found.reasons[1:] == [
        "k-NN top-1: 20.0 % before training, 50.0 % after.",
        "RankMe: 20.0 before training, 60.0 after.",
    ]


@pytest.mark.parametrize(
    ("numbers", "level", "headline", "words"),
    [
        ({"feature_spread": 0.001}, "bad", "Collapsed", "features of all images"),
        ({"spread/view": 0.001}, "bad", "A head has collapsed", "same output"),
        ({"loss/view": 0.001, "entropy/view": 0.001}, "bad", "A head has collapsed", "one output wins"),
        ({"entropy/view": 0.99}, "caution", "Flat head", "head of 'view' is flat"),
        ({"loss": lambda step: math.nan if step > 500 else 3.0}, "bad", "Diverged", "not finite at step 510"),
        ({"loss": lambda step: 3.0 + step / 100}, "bad", "Diverged", "grew from"),
    ],
)
def test_each_way_to_fail(numbers, level, headline, words):
    found = verdict(log(**numbers))
    assert (found.level, found.headline) == (level, headline)
    assert words in found.reasons[0]


def test_the_worst_finding_is_the_headline_and_all_are_reasons():
    found = verdict(log(steps=400, **{"entropy/view": 0.99, "feature_spread": 0.0}))
    assert found.headline == "Collapsed"
    assert [any(words in reason for reason in found.reasons) for words in ("flat", "400 of 1000 steps")] == [True, True]


@pytest.mark.parametrize(("steps", "epochs", "headline"), [(500, 10, "Unfinished"), (100, 1, "Too short to judge")])
def test_too_little_training(steps, epochs, headline):
    found = verdict(log(steps), epochs=epochs)
    assert (found.level, found.headline) == ("caution", headline)


@pytest.mark.parametrize(
    ("scores", "headline"),
    [
        ({"knn": (0.2, 0.22)}, "No gain"),
        ({"rank": (60, 20)}, "Features lose dimensions"),
        ({"rank": (60, 50)}, "Healthy"),
    ],
)
def test_scores_that_do_not_rise(scores, headline):
    assert verdict(scored(log(), **scores)).headline == headline


def test_nothing_was_logged():
    assert verdict([]).headline == "Not started"
    assert verdict([metrics_row(0, 0.0, [Metric("RankMe", 3.0, unit="")])]).headline == "Not started"


def test_a_warning_that_passed_is_listed_but_is_not_the_verdict():
    """It is named with the first logged step after a tenth of the run, and each kind once."""
    found = verdict(log(feature_spread=lambda step: 0.0 if step < 300 else 0.5))
    assert found.headline == "Healthy"
    assert [warning.step for warning in found.warnings] == [100]


def test_heads_without_a_softmax_are_not_flat():
    assert verdict(log(**{"entropy/view": 0.99}), outputs=None).headline == "Healthy"


def test_means_are_over_a_window_or_at_least_three_rows():
    rows = [{"step": step, "loss": float(step)} for step in (10, 20, 30, 40, 140, 240)]
    assert means_at(rows, 3)["loss"] == 30  # steps 20 to 40
    assert means_at(rows, 5)["loss"] == 140  # the last three rows
    assert means_at(rows, 0)["loss"] == 10


def test_total_steps():
    assert total_steps([{"step": 30, "epoch": 1.5}], epochs=4) == 80


def test_training_with_labels():
    rows = [{"step": step, "loss": 2.0} for step in range(10)]
    metrics = [Metric("top-1", 0.5, (0.4, 0.6))]
    done = judge_task(rows, "finetune", metrics, is_finished=True)
    assert (done.headline, done.reasons) == ("Finished", ["top-1 50.0 % (95 % interval 40.0-60.0)"])
    assert judge_task(rows, "finetune", [], is_finished=False).headline == "Unfinished"
    assert judge_task([*rows, {"step": 11, "loss": math.inf}], "detect", [], is_finished=True).headline == "Diverged"
