"""The loop with a learner that only counts: what happens, when and in which order."""

import os
import signal

import pytest
from rich.console import Console

from scfs.console import PlainConsole
from scfs.errors import UserError
from scfs.runs.layout import read_metrics
from scfs.runs.metric import Metric
from scfs.runs.metrics_log import MetricsLog, open_log
from scfs.training.loop import Hooks, TrainingPlan, train
from scfs.training.resumable import TrainingFiles, fit


class Counter:
    """Sums its batches; at one step it sends a signal, or fails."""

    def __init__(self, *, signal_at=None, fail_at=None):
        self.total, self.signal_at, self.fail_at = 0, signal_at, fail_at
        self.steps = []

    def step(self, batch, step):
        if step == self.fail_at:
            raise UserError("not finite")
        if step == self.signal_at:
            os.kill(os.getpid(), signal.SIGINT)
        self.steps.append(step)
        self.total += batch
        return {"loss": float(self.total)}

    def state_dict(self):
        return {"total": self.total}

    def load_state_dict(self, state):
        self.total = state["total"]


def batches(first_step):
    return iter(range(first_step, 100))


def run(learner, tmp_path, calls, on_evaluation=lambda: None, **options):
    """Six steps of two epochs; evaluated before the first and after each epoch."""

    def evaluate(done, _):
        calls.append(f"evaluate {done}")
        on_evaluation()
        return [Metric("score", 0.5)]

    plan = TrainingPlan(3, 6, 4, log_every_steps=2, how_to_resume="do this", **options)
    hooks = Hooks(
        watch=lambda done, batch, numbers, _: calls.append(f"watch {done} {batch} {numbers['loss']:g}"),
        evaluation_due=lambda done: done % 3 == 0,
        evaluate=evaluate,
        save_due=lambda done: done == 4,
        save=lambda done: calls.append(f"save {done}"),
        keep=lambda done: calls.append(f"keep {done}"),
    )
    with open_log(tmp_path, plan.first_step) as log:
        train(learner, batches(plan.first_step), plan, hooks, log=log, console=Console(quiet=True))


def test_the_order_of_events(tmp_path):
    calls = []
    run(Counter(), tmp_path, calls)
    assert calls[:3] == ["evaluate 0", "watch 1 0 0", "keep 1"]
    assert calls[5:9] == ["watch 3 2 3", "keep 3", "save 3", "evaluate 3"]
    assert calls[9:12] == ["watch 4 3 6", "keep 4", "save 4"]
    assert calls[-4:] == ["watch 6 5 15", "keep 6", "save 6", "evaluate 6"]
    assert [call for call in calls if call.startswith("save")] == ["save 3", "save 4", "save 6"]
    rows = read_metrics(tmp_path)
    assert [(row["step"], "score" in row) for row in rows] == [
        *((0, True), (2, False), (3, True), (4, False)),
        *((6, False), (6, True)),
    ]
    assert rows[1]["epoch"] == pytest.approx(2 / 3)
    assert rows[1]["images_per_second"] > 0


def test_the_last_line_shows_the_last_evaluation():
    console = PlainConsole(record=True, force_terminal=False, width=200)

    def evaluate(done, display):
        display.pin("score", f"after {done}")
        return ()

    hooks = Hooks(evaluation_due=lambda done: done == 6, evaluate=evaluate)
    train(Counter(), batches(0), TrainingPlan(3, 6, 4), hooks, log=MetricsLog([]), console=console)
    lines = console.export_text().splitlines()
    assert [line for line in lines if "step 6/6" in line] == lines[-1:]
    assert "score after 6" in lines[-1]


def test_a_stop_finishes_the_step_saves_and_explains_how_to_resume(tmp_path):
    calls = []
    with pytest.raises(KeyboardInterrupt, match=r"Stopped after step 2; do this\."):
        run(Counter(signal_at=1), tmp_path, calls)
    assert calls[-2:] == ["keep 2", "save 2"]
    assert read_metrics(tmp_path)[-1]["step"] == 2


@pytest.mark.parametrize("more_follows", [False, True])
def test_a_stop_in_the_last_step(tmp_path, more_follows):
    calls = []
    if more_follows:
        with pytest.raises(KeyboardInterrupt):
            run(Counter(signal_at=5), tmp_path, calls, more_follows=True)
    else:
        run(Counter(signal_at=5), tmp_path, calls)
    assert calls[-2:] == (["keep 6", "save 6"] if more_follows else ["save 6", "evaluate 6"])


def test_a_stop_comes_before_an_evaluation_which_is_done_on_resuming(tmp_path):
    calls = []
    with pytest.raises(KeyboardInterrupt, match="Stopped after step 3"):
        run(Counter(signal_at=2), tmp_path, calls)
    assert calls[-1] == "save 3"
    run(Counter(), tmp_path, calls := [], first_step=3)
    assert calls[:2] == ["evaluate 3", "watch 4 3 3"]
    run(Counter(), tmp_path, calls := [], first_step=3, evaluated=True)
    assert calls[0] == "watch 4 3 3"


def test_a_stop_during_an_evaluation_and_one_that_fails(tmp_path):
    """The state is saved before."""

    def fail():
        raise MemoryError

    calls = []
    with pytest.raises(KeyboardInterrupt, match="Stopped after step 3"):
        run(Counter(), tmp_path, calls, lambda: len(calls) > 1 and os.kill(os.getpid(), signal.SIGINT))
    assert calls[-2:] == ["save 3", "evaluate 3"]
    with pytest.raises(MemoryError):
        run(Counter(), tmp_path, calls := [], lambda: len(calls) > 1 and fail())
    assert calls[-2:] == ["save 3", "evaluate 3"]


def test_a_step_that_fails_is_neither_logged_nor_saved(tmp_path):
    calls = []
    with pytest.raises(UserError, match="not finite"):
        run(Counter(fail_at=4), tmp_path, calls)
    assert calls[-2:] == ["keep 4", "save 4"]
    assert read_metrics(tmp_path)[-1]["step"] == 4


def test_fit_resumes_and_truncates_its_curve(tmp_path):
    files = TrainingFiles(tmp_path / "state.pt", tmp_path / "curves", {"rate": 1.0})
    plan, quiet = TrainingPlan(3, 6, 4), Console(quiet=True)
    with pytest.raises(KeyboardInterrupt, match="run the same command again to resume"):
        fit(Counter(signal_at=3), batches, plan, files=files, console=quiet)
    with (tmp_path / "curves" / "metrics.jsonl").open("a") as file:  # what a crash after the saved state leaves
        file.write('{"step": 5, "loss": 0.0}\n{"step": 6, "lo')
    learner = Counter()
    fit(learner, batches, plan, files=files, console=quiet)
    assert (learner.total, learner.steps) == (sum(range(6)), [4, 5])
    assert [(row["step"], row["loss"]) for row in read_metrics(tmp_path / "curves")] == [
        *((1, 0), (2, 1), (3, 3), (4, 6)),
        *((5, 10), (6, 15)),
    ]
    other = TrainingFiles(files.state, files.curves, {"rate": 2.0})
    with pytest.raises(UserError, match=r"was made with rate = 1\.0, not 2\.0"):
        fit(Counter(), batches, plan, files=other, console=quiet)
    files.remove_state()
    assert not files.state.exists()
