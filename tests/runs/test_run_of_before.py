"""A run folder of version 0.1: it can be resumed and evaluated as before."""

import tarfile
from pathlib import Path

import pytest

from scfs.runs.layout import read_metrics

ARCHIVE = Path(__file__).parent / "run_of_0.1.tar.xz"


@pytest.fixture
def old_run(tmp_path, monkeypatch):
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    monkeypatch.chdir(tmp_path)
    return Path("old_run")


def test_it_resumes(scfs, old_run):
    code, _, err = scfs("pretrain", old_run, "--resume")
    assert code == 0, err
    losses = {row["step"]: row["loss"] for row in read_metrics(old_run) if "loss" in row}
    assert [losses[step] for step in (4, 5, 6)] == pytest.approx(
        [21.664579391479492, 20.936813354492188, 18.86197280883789], rel=1e-5
    )


@pytest.mark.parametrize(("inner", "top1"), [("", "18.8"), ("finetune", "12.5")])
def test_it_is_scored(scfs, old_run, inner, top1):
    code, out, err = scfs("knn", old_run / inner, "--data", "scenes:24,16", "--k", 5, "--workers", 0)
    assert code == 0, err
    assert f" {top1} " in out
