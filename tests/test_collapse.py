"""The parts of `python -m faults.collapse` that need no training."""

import json

import numpy as np
import pytest
from PIL import Image

from faults import collapse
from scfs.config import Config
from scfs.data.views import MultiCrop
from scfs.runs import layout
from scfs.runs.metric import Metric

VIEWS = {
    "global_size": 16,
    "local_size": 8,
    "num_local_views": 0,
    "global_scale": (0.9, 1.0),
    "local_scale": (0.1, 0.2),
}


@pytest.fixture
def noise():
    random = np.random.default_rng(0)
    return [Image.fromarray(random.integers(0, 256, (32, 32, 3), dtype=np.uint8)) for _ in range(2)]


@pytest.fixture(autouse=True)
def _unbroken(monkeypatch):
    """A fault replaces the method for good; the test's own replacement is undone."""
    monkeypatch.setattr(MultiCrop, "__call__", MultiCrop.__call__)


def test_one_image_in_place_of_all(noise):
    first, second = (MultiCrop(**VIEWS)(image, 0).global_views for image in noise)
    assert not first.equal(second)
    collapse.one_image()
    first, second = (MultiCrop(**VIEWS)(image, 0).global_views for image in noise)
    assert first.equal(second)
    assert first.float().std(dim=(-2, -1)).min() > 1


def test_constant_colours(noise):
    collapse.constant_colours()
    views = MultiCrop(**VIEWS)(noise[0], 0).global_views
    assert views.float().std(dim=(-2, -1)).max() < 1


def test_warnings_are_read_from_the_log(tmp_path):
    config = Config()
    layout.write_settings(tmp_path, config.model_dump(mode="json"))
    rows = [{"step": step, "epoch": 2.0 * step, "loss": 1.0, "feature_spread": 0.0} for step in range(1, 101)]
    lines = [json.dumps(row) for row in rows] + [json.dumps({"step": 100, "epoch": 200.0, "rankme": 1.0})]
    (tmp_path / layout.METRICS).write_text("\n".join(lines), encoding="utf-8")
    assert [*collapse.warnings(tmp_path)] == [collapse.Warned(30, "collapse", "")]
    name, steps, first, texts = collapse.log_line(tmp_path)
    assert (steps, first) == ("100 of 100", "30")
    assert "collapsing" in texts
    assert "seed 0" in name


def test_words_of_a_row():
    assert collapse.said([]) == "nothing"
    found = [collapse.Warned(30, "flat", "view"), collapse.Warned(45, "frozen teacher", "")]
    assert collapse.said(found) == "flat (view) 30; frozen teacher 45"
    ends = [
        (0, Metric("k-NN top-1", 0.14, interval=(0.12, 0.16))),
        (60, Metric("k-NN top-1", 0.2, interval=(0.18, 0.22))),
    ]
    assert collapse._ends(ends) == "14.0 to 20.0 (18.0-22.0)"
