import json
import multiprocessing
import tarfile
from pathlib import Path

import pytest

from scfs.errors import UserError
from scfs.runs.files import write_atomic
from scfs.runs.metric import Metric, by_name
from scfs.runs.metrics_log import logged_metrics, metrics_row
from scfs.runs.results import Result, add_result, read_results

OLD_RUN = Path(__file__).parent / "run_of_0.1.tar.xz"


@pytest.fixture
def old_run(tmp_path):
    """A run folder of version 0.1."""
    with tarfile.open(OLD_RUN) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "old_run"


def test_round_trip(tmp_path):
    metrics = [Metric("AP", 0.5, (0.4, 0.6)), Metric("latency", 3.0, None, "ms", False)]
    add_result(tmp_path, Result("detect", metrics, "voc:photos", "12 epochs", {"lr": 0.1}, {"per class": [1]}, 2.0))
    [result] = read_results(tmp_path)
    assert result.metrics == metrics
    assert (result.evaluation, result.data, result.protocol) == ("detect", "voc:photos", "12 epochs")
    assert (result.settings, result.details, result.seconds) == ({"lr": 0.1}, {"per class": [1]}, 2.0)
    assert result.when


def _add_some(folder: Path, name: str) -> None:
    for number in range(20):
        add_result(folder, Result(name, [Metric("top-1", number / 20)], "photos"))


def test_evaluations_that_end_at_once_are_all_recorded(tmp_path):
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_add_some, args=(tmp_path, name)) for name in ("knn", "linear", "detect")]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    found = [(result.evaluation, result.metrics[0].value) for result in read_results(tmp_path)]
    assert sorted(found) == sorted((name, n / 20) for name in ("knn", "linear", "detect") for n in range(20))


def test_results_of_version_0_1(old_run):
    knn, finetune, linear = read_results(old_run)
    assert {name: metric.value for name, metric in by_name(knn.metrics).items()} == {
        "k=1 top-1": 0.25,
        "k=1 top-5": 0.5,
        "k=5 top-1": 0.25,
        "k=5 top-5": 0.875,
    }
    assert by_name(knn.metrics)["k=1 top-1"].interval == (0.0, 0.625)
    assert (knn.data, knn.protocol) == ("scenes:12,8", "32 px")
    assert finetune.protocol == "100 % of the labels, 32 px, 1 epochs"
    assert linear.protocol == "cached, 32 px, 2 epochs"
    assert [metric.name for metric in linear.metrics] == ["top-1", "top-5"]
    add_result(old_run, Result("knn", [Metric("k=1 top-1", 0.5)], "photos"))
    assert len(read_results(old_run)) == 4
    assert "figures" in json.loads((old_run / "results.json").read_text())[0]  # existing entries stay


@pytest.mark.parametrize(
    "content",
    [
        *('[{"evaluation": "knn"}]', "[3]", '[{"figures": 3}]', '{"a": 1}', "[", "\0"),
        '[{"evaluation": "knn", "data": "photos", "metrics": [{"name": "top-1", "value": "high"}]}]',
        '[{"evaluation": "knn", "data": "photos", "metrics": [{"name": "top-1", "value": 1, "interval": [1]}]}]',
    ],
)
def test_damaged_results_are_a_user_error_and_stay(tmp_path, content):
    (tmp_path / "results.json").write_text(content)
    for call in (lambda: read_results(tmp_path), lambda: add_result(tmp_path, Result("knn", [], "photos"))):
        with pytest.raises(UserError, match=r"results.json is damaged; move it away"):
            call()
    assert (tmp_path / "results.json").read_text() == content


def test_keys_of_logged_metrics():
    metrics = [Metric("k-NN top-1", 0.3), Metric("RankMe", 12.0, unit=""), Metric("AP50", 0.1)]
    row = metrics_row(3, 1.5, metrics)
    assert {name: row[name] for name in row if name != "metrics"} == {
        **{"step": 3, "epoch": 1.5},
        **{"knn_top1": 0.3, "rankme": 12.0, "ap50": 0.1},
    }
    rows = [{"step": 1, "knn_top1": 0.1, "rankme": 2.0}, {"step": 2, "loss": 3.0}, json.loads(json.dumps(row))]
    found = logged_metrics(rows)  # the first row is from version 0.1
    assert [(step, metric.value) for step, metric in found["k-NN top-1"]] == [(1, 0.1), (3, 0.3)]
    assert [step for step, _ in found["AP50"]] == [3]
    assert found["RankMe"][0][1].unit == ""


def test_a_failed_write_leaves_the_previous_file(tmp_path):
    path = tmp_path / "file"
    write_atomic(path, lambda file: file.write(b"old"))

    def fails(file):
        file.write(b"half")
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        write_atomic(path, fails)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_results_that_cannot_be_read_are_not_called_damaged(tmp_path):
    (tmp_path / "results.json").mkdir()
    with pytest.raises(UserError, match=r"Cannot read .*results.json: Is a directory; move it away"):
        read_results(tmp_path)
