"""A time in place of a number of epochs."""

import itertools
import json

import pytest
import torch
from rich.console import Console

from scfs.errors import UserError
from scfs.pretraining import prepare as preparing
from scfs.pretraining import timing
from scfs.pretraining.job import pretrain
from scfs.pretraining.prepare import prepare
from scfs.pretraining.step import PretrainLearner
from scfs.pretraining.timing import seconds_per_step
from scfs.recipes.catalogue import starting_point
from scfs.runs.auto_choices import read_auto_choices

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
    flags = {"method__momentum": "auto", "run__checkpoint_every_steps": 1}
    whole = start(tiny, tmp_path / "whole", optim__epochs=2, **flags)
    real = PretrainLearner.step

    def stop_at(last):
        def step(learner, batch, number):
            if number == last:
                raise KeyboardInterrupt
            return real(learner, batch, number)

        return step

    monkeypatch.setattr(preparing, "TIMED_STEPS", 0)
    for last, seconds in {3: 0.5, 4: 0.01, 5: 2.0}.items():  # the speed of the machine changes
        measured(seconds)
        with monkeypatch.context() as patch:
            patch.setattr(PretrainLearner, "step", stop_at(last))
            with pytest.raises(KeyboardInterrupt):
                start(tiny, tmp_path / "run", resume=True, optim__epochs="0.05min", **flags)
    with pytest.raises(UserError, match=r"run was started with 0.05min, not optim.epochs = '0.1min'; resume it"):
        start(tiny, tmp_path / "run", resume=True, optim__epochs="0.1min", **flags)
    run = start(tiny, tmp_path / "run", resume=True, optim__epochs="0.05min", **flags)
    assert logged(run) == logged(whole)
    assert {choice.setting: choice.given for choice in read_auto_choices(run)} == {
        "optim.epochs": "0.05min",
        "method.momentum": "auto",
        **dict.fromkeys(("views.global_scale", "views.local_scale"), "auto"),
    }


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


def test_a_time_too_short_for_the_warm_up_is_one_sentence(tiny, measured):
    measured(0.5)
    with pytest.raises(UserError, match=r"^optim.warmup_epochs 10 exceeds optim.epochs 4; lower it, or set it to auto"):
        prepare(tiny(optim__epochs="0.1min", optim__warmup_epochs=10), torch.device("cpu"), QUIET)
    long = prepare(tiny(optim__epochs="0.1h", optim__warmup_epochs=150), torch.device("cpu"), QUIET)
    assert long.config.optim.epochs == 240


def test_no_time_gives_more_epochs_than_a_run_may_have(tiny, measured):
    measured(0.001)
    run = prepare(tiny(optim__epochs="9999h"), torch.device("cpu"), QUIET)
    assert run.config.optim.epochs == 1_000_000


class Learner:
    """Takes steps, without training."""

    def __init__(self):
        self.steps = []

    def step(self, batch, step):
        self.steps.append((batch, step))


@pytest.fixture
def clock(monkeypatch):
    """Every look at the clock finds that so many seconds have passed."""

    def tick(seconds):
        times = (seconds * i for i in itertools.count())
        monkeypatch.setattr(timing.time, "perf_counter", lambda: next(times))

    return tick


def test_quick_steps_are_timed_after_those_loaded_ahead(monkeypatch):
    seconds = iter([9, 1, *[1] * 8, *[5] * 10])  # slow at first, then as quick as what is loaded, then as the loader
    monkeypatch.setattr(timing, "_times", lambda *arguments: [next(seconds) for _ in range(arguments[-1])])
    assert seconds_per_step(Learner(), iter(()), ahead=8, timed=10) == 5


@pytest.mark.parametrize(("seconds", "steps"), [(1, 20), (4, 8), (20, 2)])  # until 15 seconds have passed, twice
def test_slow_steps_are_not_timed_for_long(clock, seconds, steps):
    clock(seconds)
    learner = Learner()
    assert seconds_per_step(learner, iter(range(100)), ahead=8, timed=10) == seconds
    assert learner.steps == [(i, i) for i in range(steps)]


def test_a_single_step_is_timed(clock):
    clock(3)
    assert seconds_per_step(Learner(), iter(range(1)), ahead=8, timed=10) == 3


def test_all_processes_stop_timing_at_the_same_step(clock, monkeypatch):
    clock(1)
    monkeypatch.setattr(timing, "sum_counts", lambda is_enough: [is_enough + 1])  # another one has had enough
    learner = Learner()
    seconds_per_step(learner, iter(range(100)), ahead=8, timed=10)
    assert len(learner.steps) == 2
