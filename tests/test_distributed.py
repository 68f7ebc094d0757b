"""Two gloo processes with b images each end where one process with 2 b images does, to 1e-10 in float64."""

import errno
import math
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.multiprocessing as mp
from conftest import TINY
from torch import nn

from scfs import distributed
from scfs.backbones import Backbone
from scfs.config import Config
from scfs.errors import UserError
from scfs.evaluate.sharding import usable_batch_size
from scfs.pretraining.build import build_method
from scfs.pretraining.step import PretrainLearner, schedule_at
from scfs.recipe import check
from scfs.training.batch_norm import sync_batch_norms
from scfs.training.gradient_checkpointing import checkpoint_blocks
from scfs.training.gradients import Gradients, check_finite
from scfs.training.optim import build_optimizer
from scfs.training.precision import Precision
from scfs.view_batch import ViewBatch

CPU = torch.device("cpu")
POOLED = {"method.out_dim": "auto", "method.search_head": "pooled"}
CASES = [
    {"method.contrast": "dino-no-multicrop"},
    {"method.contrast": "dino", "method.batch_norm": True},
    {"method.contrast": "dino-multilayer"},
    {"method.contrast": "scfs"},
    {"method.contrast": "scfs", "method.variant": "released", "optim.clip": "total"},
    {"method.contrast": "roi-crop"},
    {"method.contrast": "scfs-no-multicrop", "method.data_term": False},
    {"method.contrast": "scfs", "run.gradient_checkpointing": True, "optim.name": "lars"},
    {"method.contrast": "scfs", "method.objective": "info-nce", "method.out_dim": "auto", "method.targets": "student"},
    {"method.contrast": "scfs", "method.objective": "info-nce", **POOLED, "method.multilayer": True},
    {"method.contrast": "roi-crop", "method.objective": "info-nce", **POOLED},  # pairs of weight 0 are no negatives
    {"method.contrast": "roi-crop", "method.centering": "sinkhorn"},  # and are not balanced
    {"method.contrast": "scfs-no-multicrop", "method.objective": "info-nce", **POOLED},
    {"method.contrast": "scfs", "method.objective": "coding-rate", **POOLED, "optim.name": "muon"},
    {"method.contrast": "roi-crop", "method.objective": "vicreg", **POOLED, "method.targets": "student"},
    {"method.contrast": "dino-multilayer", "method.centering": "sinkhorn"},
    {"method.contrast": "dino", "backbone.name": "mobilenetv3_small_050"},  # norms with built-in activations
]
IMAGES, STEPS = 4, 3


def draw_batch(seed: int) -> ViewBatch:
    """Views in float64; the boxes make some pairs of roi-crop overlap and others not."""
    rng = np.random.default_rng(seed)

    def boxes(views, low, high):
        corner, side = rng.uniform(0, 0.5, (views, IMAGES, 2)), rng.uniform(low, high, (views, IMAGES, 2))
        return torch.from_numpy(np.concatenate([corner, corner + side], -1))

    def flips(views):
        return torch.from_numpy(rng.random((views, IMAGES)) < 0.5)

    return ViewBatch(
        torch.from_numpy(rng.standard_normal((2, IMAGES, 3, 32, 32))),
        torch.from_numpy(rng.standard_normal((2, IMAGES, 3, 16, 16))),
        *(boxes(2, 0.3, 0.5), boxes(2, 0.1, 0.3)),
        *(flips(2), flips(2)),
    )


def learn(case: dict[str, object]) -> dict[str, torch.Tensor]:
    """Steps on this process's shard of each batch; everything in a checkpoint, losses and diagnostics."""
    config = check(Config, TINY, case)
    torch.manual_seed(0)
    method = build_method(config).double()
    method = sync_batch_norms(method, CPU).train()
    if config.run.gradient_checkpointing:
        assert checkpoint_blocks(method.student.backbone) == 4
    optimizer = build_optimizer(config.optim.name, method.student)
    learner = PretrainLearner(
        method,
        distributed.parallel(method, CPU),
        optimizer,
        Precision("float32", CPU),
        lambda step: schedule_at(config, step, STEPS),
        clip=config.optim.clip,
        clip_norm=0.5,
    )
    shard = distributed.per_process(IMAGES, "images")
    first = distributed.rank() * shard
    numbers = []
    for step in range(STEPS):
        batch = ViewBatch(*(part[:, first : first + shard] for part in draw_batch(step)))
        numbers.append(list(learner.update([batch], learner.schedule(step)).values()))
    return {**method.state_dict(), "numbers": torch.tensor(numbers, dtype=torch.float64)}


def as_process(rank: int, ports: tuple[int, int], folder: str) -> None:
    os.environ.update(RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE="2")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(ports[0]))
    torch.set_num_threads(1)
    with distributed.process_group(CPU):
        found = [learn(case) for case in CASES]
        found.append(helpers_of_two())
    os.environ.update(MASTER_PORT=str(ports[1]), SCFS_TIMEOUT="2")
    with distributed.process_group(CPU):
        with distributed.waiting_for_all():
            time.sleep(4 * rank)
        found.append(distributed.sum_counts(1))
    torch.save(found, Path(folder) / f"{rank}.pt")


def helpers_of_two() -> dict[str, object]:
    """What the small functions of `distributed` give in two processes."""

    def refused(action: Callable[[], object]) -> str:
        try:
            action()
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return ""

    def fail(error: Exception) -> None:
        raise error

    full = OSError(errno.ENOSPC, "No space left on device", "last.pt")
    own = distributed.rank() == 1  # what only one process sees
    whole, broken = torch.ones(3), torch.tensor([1.0, math.inf, 1.0])

    def check_step(loss: float, gradient: torch.Tensor) -> None:
        parameter = nn.Parameter(torch.zeros(3))
        parameter.grad = gradient
        check_finite({"loss": torch.tensor(loss)}, Gradients([("weight", parameter)]), step=3, remedy="stop")

    norm = sync_batch_norms(nn.Sequential(nn.BatchNorm1d(2)), CPU)
    half = sync_batch_norms(nn.Sequential(nn.BatchNorm1d(2)), CPU)
    low_precision = half(torch.full((3, 2), 1.0 + distributed.rank(), dtype=torch.bfloat16))
    return {
        "half": (low_precision.dtype, low_precision.tolist(), half[0].running_mean.tolist()),
        "first": distributed.on_rank_zero(distributed.rank),
        "message": refused(lambda: distributed.on_rank_zero(lambda: fail(UserError("the first one failed")))),
        "full": refused(lambda: distributed.on_rank_zero(lambda: fail(full))),
        "other": refused(lambda: distributed.on_rank_zero(lambda: fail(KeyError("name")))),
        "loss": refused(lambda: check_step(math.nan if own else 1.0, whole)),
        "gradient": refused(lambda: check_step(1.0, broken if own else whole)),
        "finite": refused(lambda: check_step(1.0, whole)),
        "refused": refused(lambda: distributed.per_process(5, "optim.batch_size")),
        "batches": [usable_batch_size(100, 5), usable_batch_size(4, 5)],
        "total": distributed.sum_counts(True, distributed.rank() + 2),
        "gather": distributed.gather(distributed.rank()),
        "eval": norm.eval()(torch.ones(3, 2)).tolist(),
    }


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """What each of two processes found, case by case."""
    folder = tmp_path_factory.mktemp("two")
    with socket.socket() as free, socket.socket() as another:
        for each in (free, another):
            each.bind(("127.0.0.1", 0))
        ports = (free.getsockname()[1], another.getsockname()[1])
    mp.spawn(as_process, args=(ports, str(folder)), nprocs=2)
    return [torch.load(folder / f"{rank}.pt") for rank in (0, 1)]


@pytest.mark.parametrize("case", range(len(CASES)), ids=lambda i: "-".join(map(str, CASES[i].values())))
def test_two_processes_equal_one(two, case):
    expected = learn(CASES[case])
    assert expected["numbers"].isfinite().all()
    for found in two:
        assert found[case].keys() == expected.keys()
        for name, value in expected.items():
            torch.testing.assert_close(found[case][name], value, rtol=1e-10, atol=1e-10, msg=name)


def test_small_functions_in_two_processes(two):
    for sign, found in zip((-1, 1), (two[0][-2], two[1][-2]), strict=True):
        dtype, values, mean = found["half"]
        assert dtype == torch.bfloat16
        assert np.allclose(values, sign, atol=1e-2)
        assert np.allclose(mean, 0.15)
        assert found["first"] == 0
        assert found["message"] == "UserError: the first one failed"
        assert found["full"].startswith("UserError: Cannot read or write last.pt: No space left on device; ")
        assert found["other"] == (
            "KeyError: 'name'" if sign < 0 else "RuntimeError: Rank zero failed: KeyError('name')."
        )
        assert found["loss"] == "NotFiniteError: The loss became nan at step 3; stop."
        which = " of weight" if sign > 0 else ""  # only the process that has it can name it
        assert found["gradient"] == f"NotFiniteError: The gradients{which} became inf at step 3, at a loss of 1; stop."
        assert found["finite"] == ""
        assert found["refused"] == "UserError: optim.batch_size 5 is not divisible by 2 processes; use 4 or 6."
        assert found["batches"] == [4, 4]
        assert found["total"] == [2, 5]
        assert found["gather"] == [0, 1]
        assert np.allclose(found["eval"], 1, atol=1e-4)


def test_processes_may_wait_longer_than_the_time_limit(two):
    assert [found[-1] for found in two] == [[2], [2]]


def test_blocks_in_a_plain_list_are_recomputed_too():
    torch.manual_seed(0)
    backbone, images = Backbone("eva02_tiny_patch14_224"), torch.randn(2, 3, 28, 28)
    backbone(images)[0].sum().backward()
    plain = {name: parameter.grad for name, parameter in backbone.named_parameters()}
    backbone.zero_grad(set_to_none=True)
    assert checkpoint_blocks(backbone) == 12
    backbone(images)[0].sum().backward()
    for name, parameter in backbone.named_parameters():
        torch.testing.assert_close(parameter.grad, plain[name])


def test_recomputing_changes_nothing():
    plain, again = (learn({"run.gradient_checkpointing": switch}) for switch in (False, True))
    for name, value in plain.items():
        torch.testing.assert_close(again[name], value, rtol=1e-12, atol=1e-12, msg=name)


def test_processes_do_not_share_a_gpu(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    with pytest.raises(UserError, match="cannot be used by 2 processes; use cuda, one GPU for each"):
        distributed.choose_device("cuda:0")


@pytest.mark.parametrize(
    ("name", "local_rank", "chosen", "made_current"),
    [("auto", None, "cuda", []), ("cuda:1", None, "cuda:1", ["cuda:1"]), ("cuda", "3", "cuda:3", ["cuda:3"])],
)
def test_the_gpu_of_a_process_is_the_current_one(monkeypatch, name, local_rank, chosen, made_current):
    current = []
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.empty", lambda *_, **__: None)
    monkeypatch.setattr("torch.cuda.set_device", lambda device: current.append(str(device)))
    if local_rank:
        monkeypatch.setenv("WORLD_SIZE", "4")
        monkeypatch.setenv("LOCAL_RANK", local_rank)
    assert str(distributed.choose_device(name)) == chosen
    assert current == made_current


@pytest.mark.parametrize(("device", "left"), [("cpu", ["left"]), ("cuda", [])])
def test_a_process_that_fails_does_not_wait_for_the_others(monkeypatch, device, left):
    """Leaving a group of NCCL would."""
    found = []
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr("torch.distributed.init_process_group", lambda *_, **__: None)
    monkeypatch.setattr("torch.distributed.destroy_process_group", lambda: found.append("left"))
    with pytest.raises(KeyError), distributed.process_group(torch.device(device)):
        raise KeyError
    assert found == left
    with distributed.process_group(torch.device(device)):
        pass
    assert found == [*left, "left"]
