"""The command under torchrun, as users start it."""

import json
import os
import shutil
import socket
import subprocess
import sys

import pytest
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

from scfs.runs import checkpoint

FLAGS = ["--run.knn_every_epochs", "1", "--run.keep_every_epochs", "1"]


def rows(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_two_processes_train_score_and_resume_like_one(scfs, tiny_recipe, tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    assert scfs("pretrain", tiny_recipe, "--run.folder", one, *FLAGS)[0] == 0
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "scfs"]
    words = ["pretrain", str(tiny_recipe), "--run.folder", str(two), *FLAGS]
    done = subprocess.run([*torchrun, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("tiny: run folder ") == 1  # only rank zero prints
    for ours, theirs in zip(rows(two), rows(one), strict=True):
        assert ours.keys() == theirs.keys()
        for name in ours.keys() - {"images_per_second", "knn_top1", "knn_top5", "metrics"}:
            assert ours[name] == pytest.approx(theirs[name], rel=2e-2), name
    assert rows(two)[0]["knn_top1"] == rows(one)[0]["knn_top1"]
    assert checkpoint.load(two / "last.pt")["method"].keys() == checkpoint.load(one / "last.pt")["method"].keys()
    whole = rows(two)
    shutil.copy(two / "epoch_0001.pt", two / "last.pt")  # as if it had stopped after the first of two epochs
    again = subprocess.run([*torchrun, "pretrain", str(two), "--resume"], capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert again.stdout.count("continues from step 3 of 6") == 1
    for ours, theirs in zip(rows(two), whole, strict=True):
        assert ours["step"] == theirs["step"]
        assert ours.get("loss") == theirs.get("loss")


def run_processes(args_of_each, folders=(None, None)):
    """Start processes as torchrun would, each with its own arguments and working directory.

    Returns exit codes and standard errors.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    group = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "scfs", *map(str, args)],
            env={**os.environ, **group, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            cwd=folder,
        )
        for rank, (args, folder) in enumerate(zip(args_of_each, folders, strict=True))
    ]
    errors = [process.communicate()[1] for process in started]
    return [process.returncode for process in started], errors


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([["--optim.lr", 0.1], ["--optim.lr", 0.2]], "Processes 0 and 1 were given different settings (optim.lr = 0.1"),
        ([["--optim.batch_size", 5]] * 2, "optim.batch_size 5 is not divisible by 2 processes; use 4 or 6."),
    ],
)
def test_all_processes_refuse_together(tiny_recipe, tmp_path, flags, message):
    run = tmp_path / "run"
    codes, errors = run_processes([["pretrain", tiny_recipe, "--run.folder", run, *own] for own in flags])
    assert codes == [2, 2]
    assert errors[0].startswith(f"scfs: {message}")
    assert errors[1] == ""
    assert not run.exists()


@pytest.mark.parametrize(("command", "change"), [("pretrain", "fewer"), ("knn", "renamed")])
def test_processes_that_see_different_images_refuse(tiny_recipe, photos, tmp_path, command, change):
    """As copies on two machines that are not quite the same."""
    (tmp_path / "other").mkdir()
    copy = shutil.copytree(photos, tmp_path / "other" / photos.name)
    image = copy / "cats" / "5.jpg"
    image.unlink() if change == "fewer" else image.rename(image.with_name("9.jpg"))
    run, here = tmp_path / "run", photos.parent
    words = {
        "pretrain": ["pretrain", tiny_recipe, "--data.source", photos.name, "--run.folder", run],
        "knn": ["knn", "random:resnet10_half", "--data", photos.name, "--k", 1, "--size", 32, "--device", "cpu"],
    }[command]
    codes, errors = run_processes([words, words], folders=(here, here / "other"))
    assert codes == [2, 2]
    assert errors[0].startswith("scfs: Processes 0 and 1 see different images (")
    assert errors[1] == ""
    assert not run.exists()


@pytest.mark.parametrize("rank", ["0", "1"])
def test_torchrun_reports_the_sentence(scfs, tmp_path, monkeypatch, rank):
    """Whichever process fails first: it ends the others, perhaps before they print."""
    path = tmp_path / "error.json"
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(path))
    monkeypatch.setenv("LOCAL_RANK", rank)
    code, _, err = scfs("pretrain", tmp_path / "missing.toml")
    sentence = f"No recipe at {tmp_path / 'missing.toml'}; scfs recipes lists the built-in ones."
    assert (code, err) == (2, f"scfs: {sentence}\n" if rank == "0" else "")
    assert ProcessFailure(local_rank=int(rank), pid=1, exitcode=2, error_file=str(path)).message == sentence
