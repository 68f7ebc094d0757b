import json
import sys
from types import SimpleNamespace

import pytest

from scfs.errors import UserError
from scfs.runs.layout import read_metrics
from scfs.runs.metrics_log import open_log


def test_rows_after_the_start_are_cut_off(tmp_path):
    log = open_log(tmp_path, 0, (), {})
    for step in (1, 2, 3):
        log.write({"step": step, "loss": step / 2})
    log.close()
    log = open_log(tmp_path, 2, (), {})
    log.write({"step": 3, "loss": 9.0})
    log.close()
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert (
        rows == read_metrics(tmp_path) == [{"step": 1, "loss": 0.5}, {"step": 2, "loss": 1.0}, {"step": 3, "loss": 9.0}]
    )


def test_other_processes_write_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    log = open_log(tmp_path, 0, ("wandb",), {})
    log.write({"step": 1, "loss": 1.0})
    log.close()
    assert not list(tmp_path.iterdir())


def test_wandb_gets_the_same_rows_and_goes_on_with_a_resumed_run(tmp_path, monkeypatch):
    said = []
    run = SimpleNamespace(log=lambda row, step: said.append((step, row)), finish=lambda: said.append("finished"))
    fake = SimpleNamespace(init=lambda **options: said.append(options) or run)
    monkeypatch.setitem(sys.modules, "wandb", fake)
    log = open_log(tmp_path / "", 0, ("wandb",), {"seed": 3})
    log.write({"step": 7, "loss": 2.0})
    log.close()
    assert said[0]["name"] == tmp_path.name
    assert said[0]["config"] == {"seed": 3}
    assert said[1:] == [(7, {"loss": 2.0}), "finished"]
    for start_step in (7, 0):
        open_log(tmp_path, start_step, ("wandb",), {}).close()
    first, resumed, anew = (words["id"] for words in said if isinstance(words, dict))
    assert first == resumed != anew


def test_mlflow_gets_the_same_rows(tmp_path, monkeypatch):
    said = []

    class Fake:
        def __getattr__(self, name):
            return lambda *words, **options: said.append((name, words, options))

    monkeypatch.setitem(sys.modules, "mlflow", Fake())
    log = open_log(tmp_path, 0, ("mlflow",), {"seed": 3})
    log.write({"step": 7, "loss": 2.0})
    log.close()
    assert ("start_run", (), {"run_name": tmp_path.name}) in said
    assert ("log_metrics", ({"loss": 2.0},), {"step": 7}) in said
    assert said[-1][0] == "end_run"


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_logger_that_is_not_installed_is_one_sentence(tmp_path, monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UserError, match=f"run.loggers names '{name}'"):
        open_log(tmp_path, 0, (name,), {})
