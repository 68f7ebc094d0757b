import numpy as np
import pytest
from rich.console import Console

from scfs.bench.data import bench_data, interleaved, sample_jpeg
from scfs.config import BenchData
from scfs.data.decode import decode
from scfs.errors import UserError


def test_the_fast_view_path_is_faster():
    """A generous guard: it takes about a quarter of the time, decoding included."""
    shares = bench_data(BenchData(rounds=5), Console(quiet=True))
    assert shares["reference"] == 1.0
    assert shares["decode only"] < shares["fast"] < 0.6


def test_the_sample_is_like_a_photo():
    assert decode(sample_jpeg()).size == (500, 375)
    assert 20_000 < len(sample_jpeg()) < 200_000


def test_jobs_take_turns():
    turns = []
    medians = interleaved({"a": lambda seed: turns.append(("a", seed)), "b": lambda seed: turns.append(("b", seed))}, 2)
    assert turns == [(name, seed) for seed in range(3) for name in "ab"]
    assert medians.keys() == {"a", "b"}
    assert np.isfinite(list(medians.values())).all()


def test_an_image_that_is_none_is_one_sentence(tmp_path):
    for path in (tmp_path / "none.jpg", tmp_path):
        with pytest.raises(UserError, match="give --image an image file"):
            bench_data(BenchData(image=str(path)), Console(quiet=True))
