"""What benchmarks/adapt.py trains on and prints."""

import json
import sys

import pytest
from conftest import REPO
from PIL import Image

from scfs.data.sources import open_labelled


@pytest.fixture
def adapt(monkeypatch):
    monkeypatch.syspath_prepend(REPO / "benchmarks")
    import adapt

    return adapt


@pytest.fixture
def folder(tmp_path):
    for split in ("train", "val"):
        for name in ("cat", "dog"):
            (tmp_path / split / name).mkdir(parents=True)
            for number in range(10):
                Image.new("RGB", (8, 8)).save(tmp_path / split / name / f"{number}.png")
    return tmp_path


def test_what_is_scored_is_not_trained_on(adapt, folder):
    names = [path.removeprefix(f"{folder}/") for path in adapt.train_photos(str(folder), held_out=True, count=0)]
    assert names == [f"train/{kind}/{number}.png" for kind in ("cat", "dog") for number in (0, 1, 2, 3, 5, 6, 7, 8)]
    _, scored = open_labelled(adapt.scored_data(str(folder), held_out=True))
    assert {*names, *(scored.name(i).removeprefix(f"{folder}/") for i in range(len(scored)))} == {
        str(path.relative_to(folder)) for path in folder.glob("train/*/*")
    }
    assert len(scored) == 4
    everything = adapt.train_photos(str(folder), held_out=False, count=0)
    assert len(everything) == 20
    assert adapt.train_photos(str(folder), held_out=False, count=4) == everything[::5]


def record(weights, scale, knn, images=0):
    length = {"steps": 190, "images": images, "batch_size": 256} if scale else dict.fromkeys(("steps", "images"), 0)
    scores = {"knn": knn, "knn_interval": (knn - 0.1, knn + 0.1), "linear": 0.5, "linear_interval": (0.4, 0.6)}
    return {"weights": weights, "data": "pets", "held_out": False, "scale": scale, **length, **scores}


def test_the_table_has_each_run_beside_its_start(adapt, tmp_path, monkeypatch, capsys):
    records = [record("a", 0, 0.2), record("b", 0, 0.3), record("a", 0.3, 0.4), record("b", 1.0, 0.25, images=500)]
    path = tmp_path / "records.jsonl"
    path.write_text("".join(f"{json.dumps(each)}\n" for each in records))
    monkeypatch.setattr("sys.argv", ["adapt.py", "table", "--records", str(path)])
    adapt.main()
    _, _, first, second = capsys.readouterr().out.splitlines()
    linear = "50.0 (40.0-60.0)"
    assert first == f"| a | pets | all | val | 0.3 | 20.0 (10.0-30.0) | 40.0 (30.0-50.0) | {linear} | {linear} |"
    assert second == f"| b | pets | 500 | val | 1 | 30.0 (20.0-40.0) | 25.0 (15.0-35.0) | {linear} | {linear} |"


@pytest.mark.parametrize("data", ["scenes", "pets=nowhere", "other=."])
def test_data_without_splits_is_refused(adapt, monkeypatch, capsys, data):
    monkeypatch.setattr(sys, "argv", ["adapt.py", "run", "--weights", "random", "--data", data])
    with pytest.raises(SystemExit) as error:
        adapt.main()
    assert error.value.code == 2
    assert "give imagenette=FOLDER or pets=FOLDER" in capsys.readouterr().err
