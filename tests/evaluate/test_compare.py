import math
import shutil

import pytest
import torch

from scfs.errors import UserError
from scfs.evaluate.accuracy import Accuracy, bootstrap_interval
from scfs.evaluate.compare import latest
from scfs.evaluate.plots import error_bars
from scfs.runs.metric import Metric, best_of
from scfs.runs.results import Result, add_result, protocol_of, read_results


def entry(value, *, low, high, evaluation="knn", name="k=20", data="photos", **settings):
    return Result(evaluation, [Metric(name, value, (low, high))], data, protocol_of(settings))


def test_the_table_the_plot_and_the_marks_of_ties(scfs, trained, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    other, third = tmp_path / "other", tmp_path / "third"
    for copy in (other, third):
        shutil.copytree(trained, copy)
    add_result(trained, entry(0.10, low=0.0, high=0.2))
    add_result(trained, entry(0.50, low=0.45, high=0.55))  # the later one counts
    add_result(trained, entry(0.70, low=0.6, high=0.8, evaluation="linear", name="top1"))
    add_result(other, entry(0.52, low=0.47, high=0.57, data="photos/"))
    add_result(third, entry(0.30, low=0.26, high=0.34, data=str(tmp_path / "photos")))
    code, _out, _ = scfs("compare", trained, other, third)
    assert code == 0
    page = (tmp_path / "runs" / "compare.md").read_text()
    assert "| evaluation | trained | other | third |" in page
    assert "| k=20 (knn, photos) % | 50.0 ~ | 52.0 | 30.0 |" in page
    assert "| top1 (linear, photos) % | 70.0 |  |  |" in page
    assert (tmp_path / "runs" / "compare.png").stat().st_size > 5000
    shutil.copytree(trained, tmp_path / "elsewhere" / "trained")
    scfs("compare", trained, tmp_path / "elsewhere" / "trained")
    head = (tmp_path / "runs" / "compare-2.md").read_text().splitlines()[2]
    assert head == f"| evaluation | {trained} | {tmp_path}/elsewhere/trained |"


def test_what_is_no_run_or_has_no_results_is_skipped(scfs, trained, monkeypatch, tmp_path):
    """As the shell expands runs/*, with the table and the plot of an earlier comparison."""
    monkeypatch.chdir(tmp_path)
    unscored, folder = shutil.copytree(trained, tmp_path / "unscored"), tmp_path / "folder"
    folder.mkdir()
    add_result(trained, entry(0.5, low=0.4, high=0.6))
    assert scfs("compare", trained)[0] == 0
    written = sorted(tmp_path.glob("runs/*"))
    assert len(written) == 2
    code, out, err = scfs("compare", *written, unscored, trained, folder)
    assert code == 0, err
    assert f"Skipped, not a run folder: {written[0]}, {written[1]}, {folder}\n" in out
    assert f"Skipped, no results yet: {unscored}\n" in out
    assert "| evaluation | trained |" in (tmp_path / "runs" / "compare-2.md").read_text()
    for runs, reason in (
        ([folder], "is not a run folder"),
        ([folder, *written], "is not a run folder"),
        ([folder, unscored], "has no results yet"),
        ([trained, tmp_path / "typo"], f"There is nothing at {tmp_path / 'typo'}"),
    ):
        code, _, err = scfs("compare", *runs)
        assert (code, err.count("\n")) == (2, 1)
        assert reason in err
    assert len([*tmp_path.glob("runs/*")]) == 4


def test_bad_input_is_one_sentence(trained, tmp_path):
    with pytest.raises(UserError, match="is not a run folder"):
        latest(tmp_path)
    with pytest.raises(UserError, match="has no results yet"):
        latest(trained)
    (trained / "results.json").write_text("{")
    with pytest.raises(UserError, match="is damaged"):
        read_results(trained)
    with pytest.raises(UserError, match="is damaged"):
        add_result(trained, entry(0.5, low=0.4, high=0.6))
    assert (trained / "results.json").read_text() == "{"  # nothing is lost


def test_ties_are_symmetric_in_the_interval():
    best = Metric("top-1", 0.6, (0.55, 0.65))
    assert Metric("top-1", 0.56, (0.5, 0.58)).ties_with(best)
    assert Metric("top-1", 0.5, (0.4, 0.61)).ties_with(best)
    assert not Metric("top-1", 0.5, (0.45, 0.54)).ties_with(best)
    assert not best.ties_with(best)
    assert not Metric("top-1", 0.59).ties_with(Metric("top-1", 0.6))  # neither has an interval


def test_any_metric_can_be_compared(scfs, trained, monkeypatch, tmp_path):
    """Boxes, overlaps, seconds: no name is treated specially."""
    monkeypatch.chdir(tmp_path)
    other = shutil.copytree(trained, tmp_path / "other")
    for run, ap, seconds in ((trained, 0.574, 3.0), (other, 0.559, 2.0)):
        metrics = [Metric("AP", ap, (ap - 0.001, ap + 0.001)), Metric("latency", seconds, None, "ms", False)]
        add_result(run, Result("detect", metrics, "voc:photos", "12 epochs"))
    code, _, err = scfs("compare", trained, other)
    assert code == 0, err
    page = (tmp_path / "runs" / "compare.md").read_text()
    assert "| AP (detect, voc:photos, 12 epochs) % | 57.4 | 55.9 |" in page
    assert "| latency (detect, voc:photos, 12 epochs) ms | 3.0 ? | 2.0 ? |" in page
    assert "\n?: without an interval, so that a difference may be chance.\n" in page
    assert "\n~: " not in page  # no such mark


def test_no_bars_of_errors_that_are_not_known():
    known, unknown = Metric("top-1", 0.5, (0.4, 0.7)), Metric("top-5", 0.9)
    [below, above] = error_bars([known, unknown])
    assert (below[0], above[0]) == (pytest.approx(10), pytest.approx(20))
    assert math.isnan(below[1])
    assert math.isnan(above[1])


def test_lower_may_be_better():
    fast, slow = (Metric("latency", value, unit="ms", higher_is_better=False) for value in (2.0, 3.0))
    assert best_of([slow, fast]) == fast
    assert best_of([Metric("AP", 0.2), Metric("AP", 0.3)]).value == 0.3


def test_the_interval_is_close_to_the_normal_approximation():
    low, high = bootstrap_interval([0.4], [1000])
    assert low == pytest.approx(0.4 - 1.96 * (0.24 / 1000) ** 0.5, abs=0.003)
    assert high == pytest.approx(0.4 + 1.96 * (0.24 / 1000) ** 0.5, abs=0.003)
    assert bootstrap_interval([1.0], [10]) == (1.0, 1.0)


def test_top_5_has_an_interval_of_its_own():
    labels = torch.arange(6).repeat_interleave(20)
    hits = torch.stack([torch.arange(120) % 2 == 0, torch.arange(120) % 5 > 0], dim=1)
    for accuracy in (Accuracy.of(hits), Accuracy.per_class(hits, labels)):
        first, five = accuracy.metrics(num_classes=6)
        ends = [*first.interval, *five.interval]
        assert ends == sorted(ends)
        assert ends[0] < first.value < ends[1]
        assert ends[2] < five.value < ends[3]
    assert five.ties_with(Metric("top-5", 0.85, (0.8, 0.9)))


def test_metrics_of_different_sizes_and_networks_are_not_mixed(trained):
    for size, network, top1 in ((64, "teacher", 0.3), (96, "teacher", 0.4), (96, "student", 0.5)):
        add_result(trained, entry(top1, low=0.2, high=0.6, data="a/photos", size=size, network=network))
    assert {measure.protocol: metric.value for measure, metric in latest(trained).items()} == {
        "64 px": 0.3,
        "96 px": 0.4,
        "96 px, student": 0.5,
    }


def test_metrics_of_different_data_checkpoints_and_temperatures_are_not_mixed(scfs, trained, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for settings in (
        {"data": "cifar10:/data/public", "target": f"{trained}/last.pt", "temperature": 0.07},
        {"data": "cifar100:/data/public"},
        {"data": "a/photos"},
        {"data": "b/photos"},
        {"data": "scenes", "target": f"{trained}/epoch_0010.pt", "temperature": 1.0},
    ):
        add_result(trained, entry(0.5, low=0.4, high=0.6, **settings))
    code, _, err = scfs("compare", trained)
    assert code == 0, err
    rows = (tmp_path / "runs" / "compare.md").read_text().splitlines()[4:9]
    names = ("a/photos", "b/photos", "cifar10:public", "cifar100:public", "scenes, epoch_0010, temperature 1")
    assert rows == [f"| k=20 (knn, {name}) % | 50.0 |" for name in names]


def test_rows_are_sorted_by_number(trained):
    for k in (100, 20, 10):
        add_result(trained, entry(0.5, low=0.4, high=0.6, name=f"k={k} top-1"))
    measures = sorted(latest(trained), key=lambda measure: measure.order)
    assert [measure.metric for measure in measures] == ["k=10 top-1", "k=20 top-1", "k=100 top-1"]
