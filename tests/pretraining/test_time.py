"""A time in place of a number of epochs."""

import json

import pytest
import torch
from rich.console import Console

from scfs.errors import UserError
from scfs.pretraining import prepare as preparing
from scfs.pretraining.job import pretrain
from scfs.pretraining.prepare import prepare
from scfs.pretraining.step import PretrainLearner
from scfs.pretraining.timing import seconds_per_step
from scfs.recipes.catalogue import starting_point

QUIET = Console(quiet=True)
STEPS_PER_EPOCH = 3  # of the tiny run


@pytest.fixture
def measured(monkeypatch):
    """Time real steps, and replace what was measured."""

    def replace(seconds):
        def measure(*args, **options):
            assert seconds_per_step(*args, **options) > 0
            return seconds

        monkeypatch.setattr(preparing, "seconds_per_step", measure)

    return replace


def start(tiny, folder, resume=False, **flags):
    return pretrain(tiny(run__folder=str(folder), **flags), name="tiny", resume=resume, console=QUIET)


def logged(run):
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in row.items() if name != "images_per_second"} for row in rows]


@pytest.mark.parametrize(
    ("time", "epochs"),
    [("0.1min", 4), ("0.1 min", 4), ("0.01h", 24), ("0.149min", 5), ("0.001min", 1)],  # an epoch takes 1.5 s
)
def test_as_many_epochs_as_fit(tiny, measured, time, epochs):
    measured(0.5)
    run = prepare(tiny(optim__epochs=time), torch.device("cpu"), QUIET)
    [choice] = [choice for choice in run.choices if choice.setting == "optim.epochs"]
    assert run.config.optim.epochs == choice.value == epochs
    assert run.total_steps == epochs * STEPS_PER_EPOCH
    assert choice.given == time
    assert choice.reason.startswith("more than fits" if time == "0.001min" else "as many as fit")


def test_a_time_is_the_same_run_as_its_number_of_epochs(tiny, tmp_path, measured):
    measured(0.5)
    flags = {"method__momentum": "auto", "optim__warmup_epochs": "auto"}  # both depend on the number of epochs
    by_time = start(tiny, tmp_path / "time", optim__epochs="0.05min", **flags)
    by_number = start(tiny, tmp_path / "number", optim__epochs=2, **flags)
    assert logged(by_time) == logged(by_number)
    assert len(logged(by_time)) == 2 * STEPS_PER_EPOCH
    assert (by_time / "settings.toml").read_text().count("epochs = 2\n") == 1


def test_resumed_with_the_epochs_of_its_start(tiny, tmp_path, measured, monkeypatch):
    whole = start(tiny, tmp_path / "whole", optim__epochs=2)
    measured(0.5)
    real = PretrainLearner.step

    def stop_at_four(learner, batch, number):
        if number == 4:
            raise KeyboardInterrupt
        return real(learner, batch, number)

    with monkeypatch.context() as patch:
        patch.setattr(preparing, "TIMED_STEPS", 1)
        patch.setattr(PretrainLearner, "step", stop_at_four)
        with pytest.raises(KeyboardInterrupt):
            start(tiny, tmp_path / "run", optim__epochs="0.05min", run__checkpoint_every_steps=1)
    measured(0.01)  # the machine has become faster
    with pytest.raises(UserError, match=r"run was started with 0.05min, not optim.epochs = '0.1min'; resume it"):
        start(tiny, tmp_path / "run", resume=True, optim__epochs="0.1min")
    run = start(tiny, tmp_path / "run", resume=True, optim__epochs="0.05min")
    assert logged(run) == logged(whole)


def test_a_number_of_epochs_is_not_resumed_with_a_time(tiny, tmp_path):
    start(tiny, tmp_path / "run", optim__epochs=1)
    with pytest.raises(UserError, match="was started with a number of epochs, not"):
        start(tiny, tmp_path / "run", resume=True, optim__epochs="1min")


def test_a_new_run_from_a_run_measures_again(tiny, tmp_path, measured):
    measured(0.5)
    run = start(tiny, tmp_path / "run", optim__epochs="0.05min")
    assert starting_point(str(run), {}).values["optim"]["epochs"] == "0.05min"
    assert starting_point(str(run), {}, resume=True).values["optim"]["epochs"] == 2


@pytest.mark.parametrize("time", ["0min", "30 minutes", "-5min", "min", "1e3min", "nanmin", "", 0, 1.5, "٣min"])
def test_what_is_neither_epochs_nor_a_time(tiny, time):
    with pytest.raises(UserError, match=r"'optim.epochs' cannot be .*a time such as 30min or 1.5h"):
        tiny(optim__epochs=time)


def test_slow_steps_are_not_timed_for_long(monkeypatch):
    clock = iter(range(0, 1000, 20))
    monkeypatch.setattr("scfs.pretraining.timing.time.perf_counter", lambda: next(clock))
    steps = []

    class Learner:
        def step(self, batch, step):
            steps.append((batch, step))

    assert seconds_per_step(Learner(), iter(range(100)), warm_up=2, timed=10) == 20
    assert steps == [(i, i) for i in range(4)]  # the two that count took 40 seconds
