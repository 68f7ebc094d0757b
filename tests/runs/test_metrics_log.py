import json
import sys
import time
from types import SimpleNamespace

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from scfs.errors import UserError
from scfs.runs.layout import read_metrics
from scfs.runs.metrics_log import check_loggers, open_log


def test_rows_after_the_start_are_cut_off(tmp_path):
    with open_log(tmp_path) as log:
        for step in (1, 2, 3):
            log.write({"step": step, "loss": step / 2})
    with open_log(tmp_path, 2) as log:
        log.write({"step": 3, "loss": 9.0})
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert (
        rows == read_metrics(tmp_path) == [{"step": 1, "loss": 0.5}, {"step": 2, "loss": 1.0}, {"step": 3, "loss": 9.0}]
    )


def test_other_processes_write_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    with open_log(tmp_path, 0, ("wandb",), {}) as log:
        log.write({"step": 1, "loss": 1.0})
    assert not list(tmp_path.iterdir())


def test_wandb_gets_the_same_rows_and_continues_a_resumed_run(tmp_path, monkeypatch):
    calls = []
    run = SimpleNamespace(log=lambda row, step: calls.append((step, row)), finish=lambda: calls.append("finished"))
    fake = SimpleNamespace(init=lambda **options: calls.append(options) or run)
    monkeypatch.setitem(sys.modules, "wandb", fake)
    with open_log(tmp_path / "", 0, ("wandb",), {"seed": 3}) as log:
        log.write({"step": 7, "loss": 2.0})
    assert calls[0]["name"] == tmp_path.name
    assert calls[0]["config"] == {"seed": 3}
    assert calls[1:] == [(7, {"loss": 2.0}), "finished"]
    for start_step in (7, 0):
        with open_log(tmp_path, start_step, ("wandb",), {}):
            pass
    first, resumed, restarted = (call["id"] for call in calls if isinstance(call, dict))
    assert first == resumed != restarted


class FakeMlflow:
    """Records its calls; runs are numbered."""

    def __init__(self):
        self.calls, self.started = [], 0

    def start_run(self, **options):
        self.calls.append(("start_run", (), options))
        self.started += "run_id" not in options
        return SimpleNamespace(info=SimpleNamespace(run_id=f"id{self.started}"))

    def __getattr__(self, name):
        return lambda *args, **options: self.calls.append((name, args, options))


def test_mlflow_gets_the_same_rows_and_continues_a_resumed_run(tmp_path, monkeypatch):
    fake = FakeMlflow()
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    with open_log(tmp_path, 0, ("mlflow",), {"seed": 3}) as log:
        log.write({"step": 7, "loss": 2.0})
    assert ("log_metrics", ({"loss": 2.0},), {"step": 7}) in fake.calls
    assert fake.calls[-1][0] == "end_run"
    for start_step in (7, 0):
        with open_log(tmp_path, start_step, ("mlflow",), {}):
            pass
    started = [options for name, _, options in fake.calls if name == "start_run"]
    new = {"run_name": tmp_path.name}
    assert started == [new, {"run_id": "id1"}, new]
    assert not any(name == "log_param" for name, _, _ in fake.calls)  # one cannot be changed on resuming


def test_a_service_that_fails_gets_no_more_rows_and_stops_nothing(tmp_path, monkeypatch, caplog):
    fake = FakeMlflow()
    monkeypatch.setitem(sys.modules, "mlflow", fake)

    def fail(*_, **__):
        raise ConnectionError("no route to server")

    with open_log(tmp_path, 0, ("mlflow",)) as log:
        log.write({"step": 1, "loss": 3.0})
        fake.log_metrics = fake.end_run = fail
        log.write({"step": 2, "loss": 2.0})
        log.write({"step": 3, "loss": 1.0})
    assert [json.loads(line)["step"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()] == [1, 2, 3]
    assert scalars(tmp_path, "loss") == [(1, 3.0), (2, 2.0), (3, 1.0)]
    consequences = ("gets no more rows", "may lack the last rows")  # the second at the end of the run
    failed = "Mlflow failed (no route to server) and {}; metrics.jsonl has all rows."
    assert caplog.messages == [failed.format(each) for each in consequences]


@pytest.mark.parametrize("error", [KeyboardInterrupt, UserError])
def test_every_sink_is_closed_at_the_end(tmp_path, monkeypatch, error):
    fake = FakeMlflow()
    monkeypatch.setitem(sys.modules, "mlflow", fake)

    def fail():
        with open_log(tmp_path, 0, ("mlflow",)) as log:
            log.write({"step": 1, "loss": 2.0})
            raise error

    with pytest.raises(error):
        fail()
    assert fake.calls[-1][0] == "end_run"
    assert scalars(tmp_path, "loss") == [(1, 2.0)]


def test_a_new_start_hides_what_tensorboard_showed(tmp_path):
    """As after a stop before the first checkpoint, or when a probe is trained again."""
    for value in (1.0, 2.0):
        with open_log(tmp_path) as log:
            log.write({"step": 1, "loss": value})
        time.sleep(1.1)  # event files are named and ordered by their second
    assert scalars(tmp_path, "loss") == [(1, 2.0)]


def scalars(folder, name):
    board = EventAccumulator(str(folder / "tensorboard"))
    board.Reload()
    return [(event.step, event.value) for event in board.Scalars(name)]


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_logger_that_is_not_installed_is_a_user_error(monkeypatch, name):
    monkeypatch.setattr("scfs.extras.find_spec", lambda _: None)
    with pytest.raises(UserError, match=f"The logger {name} needs {name}: pip install"):
        check_loggers([name])


def test_without_tensorboard_the_rows_are_logged_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr("scfs.extras.find_spec", lambda _: None)
    with open_log(tmp_path) as log:
        log.write({"step": 1, "loss": 2.0})
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.jsonl"]
