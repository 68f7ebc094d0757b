import shutil

import pytest

from scfs.errors import UserError
from scfs.evaluate.accuracy import bootstrap_interval
from scfs.evaluate.compare import Score, latest
from scfs.runs.results import add_result, read_results


def entry(top1, *, low, high, evaluation="knn", name="k=20"):
    figure = {"top1": top1, "top5": 1.0, "interval": [low, high]}
    return {"evaluation": evaluation, "figures": {name: figure}, "settings": {"data": "photos"}}


def test_table_plot_and_marks(scfs, trained, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    other, third = tmp_path / "other", tmp_path / "third"
    for copy in (other, third):
        shutil.copytree(trained, copy)
    add_result(trained, entry(0.10, low=0.0, high=0.2))
    add_result(trained, entry(0.50, low=0.45, high=0.55))  # the later one counts
    add_result(trained, entry(0.70, low=0.6, high=0.8, evaluation="linear", name="top1"))
    add_result(other, entry(0.52, low=0.47, high=0.57))
    add_result(third, entry(0.30, low=0.26, high=0.34))
    code, _out, _ = scfs("compare", trained, other, third)
    assert code == 0
    page = (tmp_path / "runs" / "compare.md").read_text()
    assert "| evaluation | trained | other | third |" in page
    assert "| k=20 (knn, photos) | 50.0 ~ | 52.0 | 30.0 |" in page
    assert "| top1 (linear, photos) | 70.0 |  |  |" in page
    assert (tmp_path / "runs" / "compare.png").stat().st_size > 5000
    shutil.copytree(trained, tmp_path / "elsewhere" / "trained")
    scfs("compare", trained, tmp_path / "elsewhere" / "trained")
    head = (tmp_path / "runs" / "compare-2.md").read_text().splitlines()[2]
    assert head == f"| evaluation | {trained} | {tmp_path}/elsewhere/trained |"


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


def test_marks_are_symmetric_in_the_interval():
    best = Score(0.6, 0.55, 0.65)
    assert Score(0.56, 0.5, 0.58).is_like(best)
    assert Score(0.5, 0.4, 0.61).is_like(best)
    assert not Score(0.5, 0.45, 0.54).is_like(best)
    assert not best.is_like(best)


def test_interval_covers_as_it_says():
    """Close to the normal approximation, and never outside 0 and 1."""
    low, high = bootstrap_interval([0.4], [1000])
    assert low == pytest.approx(0.4 - 1.96 * (0.24 / 1000) ** 0.5, abs=0.003)
    assert high == pytest.approx(0.4 + 1.96 * (0.24 / 1000) ** 0.5, abs=0.003)
    assert bootstrap_interval([1.0], [10]) == (1.0, 1.0)


def test_figures_of_different_sizes_and_networks_are_not_mixed(trained):
    for size, network, top1 in ((64, "teacher", 0.3), (96, "teacher", 0.4), (96, "student", 0.5)):
        result = entry(top1, low=0.2, high=0.6)
        add_result(trained, {**result, "settings": {"data": "a/photos", "size": size, "network": network}})
    assert {measure.protocol: score.top1 for measure, score in latest(trained).items()} == {
        "64 px": 0.3,
        "96 px": 0.4,
        "96 px, student": 0.5,
    }


def test_figures_of_different_data_checkpoints_and_temperatures_are_not_mixed(scfs, trained, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for settings in (
        {"data": "cifar10:/data/public", "target": f"{trained}/last.pt", "temperature": 0.07},
        {"data": "cifar100:/data/public"},
        {"data": "a/photos"},
        {"data": "b/photos"},
        {"data": "scenes", "target": f"{trained}/epoch_0010.pt", "temperature": 1.0},
    ):
        add_result(trained, {**entry(0.5, low=0.4, high=0.6), "settings": settings})
    code, _, err = scfs("compare", trained)
    assert code == 0, err
    rows = (tmp_path / "runs" / "compare.md").read_text().splitlines()[4:9]
    names = ("a/photos", "b/photos", "cifar100:public", "cifar10:public", "scenes, epoch_0010, temperature 1")
    assert rows == [f"| k=20 (knn, {name}) | 50.0 |" for name in names]
