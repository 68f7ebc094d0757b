"""Runs that are stopped and resumed."""

import os
import signal
import subprocess
import sys
import time

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tiny_runs import rows, train

from scfs.pretraining import job
from scfs.pretraining.step import PretrainLearner
from scfs.runs import checkpoint
from scfs.weights.read import read_weights


def interrupt_during(step, monkeypatch):
    """Send a stop signal during a step, as Ctrl-C or a scheduler does."""
    real = PretrainLearner.step

    def stopped_step(learner, batch, number):
        if number == step:
            os.kill(os.getpid(), signal.SIGTERM)
        return real(learner, batch, number)

    monkeypatch.setattr(PretrainLearner, "step", stopped_step)


@pytest.mark.parametrize(
    "flags",
    [
        {"run__knn_every_epochs": 1},
        {
            "backbone__name": "vit_tiny_patch16_224",
            "backbone__drop_path": 0.5,
            "optim__name": "adamw",
            "optim__lr": 0.01,
        },
        {
            "method__contrast": "scfs-no-multicrop",
            "method__objective": "info-nce",
            "method__targets": "student",
            "method__out_dim": "auto",
            "method__search_head": "pooled",
            "optim__name": "muon",
            "optim__backbone_lr_scale": 0.3,
            "optim__precision": "bfloat16",
        },
    ],
)
def test_resume_is_bit_for_bit(tiny, tmp_path, monkeypatch, steps_of, flags):
    config = tiny(**flags)
    whole = train(config, tmp_path, "whole")
    with monkeypatch.context() as patch:
        interrupt_during(3, patch)
        with pytest.raises(KeyboardInterrupt, match="Stopped after step 4"):
            train(config, tmp_path, "stopped")
    stopped = tmp_path / "stopped"
    assert checkpoint.load(stopped / "last.pt")["step"] == 4
    formats = [read_weights(str(run)).format for run in (stopped, whole)]
    assert formats == ["scfs (teacher, after 4 of 6 steps)", "scfs (teacher)"]
    with (stopped / "metrics.jsonl").open("a") as file:  # what a crash after the checkpoint leaves
        file.write('{"step": 5, "loss": 0.0}\n{"step": 6, "lo')
    steps = steps_of(PretrainLearner)
    train(config, tmp_path, "stopped", resume=True)
    assert steps == [4, 5]
    assert rows(stopped) == rows(whole)
    ours, theirs = (checkpoint.load(run / "last.pt") for run in (stopped, whole))
    assert ours["method"].keys() == theirs["method"].keys()
    for name, value in ours["method"].items():
        assert torch.equal(value, theirs["method"][name]), name
    for index, state in ours["optimizer"]["state"].items():
        for name, value in state.items():
            other = theirs["optimizer"]["state"][index][name]
            assert torch.equal(value, other) if isinstance(value, torch.Tensor) else value == other


def test_resume_of_a_finished_run_changes_nothing(tiny, tmp_path):
    run = train(tiny(), tmp_path)
    before = (run / "last.pt").read_bytes(), rows(run)
    train(tiny(), tmp_path, resume=True)
    assert ((run / "last.pt").read_bytes(), rows(run)) == before


def test_resume_of_a_finished_run_only_says_so(scfs, trained, capsys):
    capsys.readouterr()
    before = {path: path.stat().st_mtime_ns for path in trained.rglob("*")}
    code, out, _ = scfs("pretrain", trained, "--resume")
    assert code == 0
    assert out == f"{trained} is finished (6 of 6 steps); there is nothing to resume.\n"
    assert {path: path.stat().st_mtime_ns for path in trained.rglob("*")} == before


@pytest.mark.parametrize("at", [3, 6])
def test_an_evaluation_that_was_killed_is_done_on_resuming(tiny, tmp_path, monkeypatch, at):
    """After an epoch and after the last: the state is saved before it."""
    config = tiny(run__knn_every_epochs=1, run__checkpoint_every_steps=100)
    whole = train(config, tmp_path, "whole")
    scores = job._scores

    def killed(score, run, done, *others):
        if done == at:
            raise MemoryError
        return scores(score, run, done, *others)

    monkeypatch.setattr(job, "_scores", killed)
    with pytest.raises(MemoryError):
        train(config, tmp_path)
    assert not any(row["step"] == at and "metrics" in row for row in rows(tmp_path / "run"))
    monkeypatch.undo()
    run = train(config, tmp_path, resume=True)
    assert rows(run) == rows(whole)
    before = (run / "metrics.jsonl").read_bytes()
    monkeypatch.setattr(job, "train_run", None)  # nothing is left to do
    train(config, tmp_path, resume=True)
    assert (run / "metrics.jsonl").read_bytes() == before


def test_resume_on_other_images_is_refused(scfs, tiny_recipe, photos, tmp_path):
    run = tmp_path / "run"
    assert scfs("pretrain", tiny_recipe, "--data.source", photos, "--run.folder", run)[0] == 0
    before = (run / "last.pt").read_bytes()
    (photos / "dogs" / "0.jpg").unlink()
    code, _, err = scfs("pretrain", run, "--resume")
    assert code == 2
    assert "was trained on 12 images, and the data now has 11" in err
    assert (run / "last.pt").read_bytes() == before


def test_resume_in_another_memory_layout(tiny, tmp_path, monkeypatch):
    """Optimizer state follows the memory format of the parameters: a fused kernel would mix up elements otherwise."""
    finals = []
    for name, changed in (("same", {}), ("other", {"run__channels_last": False})):
        with monkeypatch.context() as patch:
            interrupt_during(3, patch)
            with pytest.raises(KeyboardInterrupt):
                train(tiny(), tmp_path, name)
        train(tiny(**changed), tmp_path, name, resume=True)
        finals.append(checkpoint.load(tmp_path / name / "last.pt")["method"])
    for name, value in finals[0].items():
        torch.testing.assert_close(finals[1][name], value, rtol=1e-3, atol=1e-5, msg=name)


def test_resume_without_a_run_starts_one(tiny, tmp_path):
    assert rows(train(tiny(), tmp_path, resume=True))[-1]["step"] == 6


def test_a_killed_run_resumes_exactly(scfs, tiny_recipe, tmp_path, steps_of):
    """Kill -9 during a run with data loader workers; resume from the run folder alone."""
    flags = ["--data.workers", "1", "--optim.epochs", "12", "--run.checkpoint_every_steps", "2"]
    words, steps = ["pretrain", tiny_recipe, *flags], steps_of(PretrainLearner)
    assert scfs(*words, "--run.folder", tmp_path / "whole")[0] == 0
    steps.clear()
    killed = tmp_path / "killed"
    command = [sys.executable, "-m", "scfs", *map(str, words), "--run.folder", str(killed)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"})
    deadline = time.monotonic() + 120
    while not (killed / "last.pt").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    process.kill()
    process.wait()
    saved = checkpoint.load(killed / "last.pt")["step"]
    assert 0 < saved < 36
    assert scfs("pretrain", killed, "--resume")[0] == 0
    assert steps == list(range(saved, 36))
    assert rows(killed) == rows(tmp_path / "whole")


def test_a_stopped_run_keeps_its_tensorboard_events(tiny, tmp_path, monkeypatch):
    interrupt_during(1, monkeypatch)
    with pytest.raises(KeyboardInterrupt, match="Stopped after step 2; resume with: scfs pretrain"):
        train(tiny(), tmp_path)
    board = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    board.Reload()
    assert [event.step for event in board.Scalars("loss")] == [1, 2]
