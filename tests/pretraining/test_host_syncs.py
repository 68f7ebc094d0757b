"""The host waits for a GPU once per step, however the method is set: tried on CUDA tensors without values."""

import os
import warnings
from collections import Counter
from pathlib import Path
from traceback import extract_stack
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

import scfs
from scfs.data.colours import ADJUST, blur
from scfs.data.loader import LoadedViews
from scfs.method.modes import PLANS
from scfs.pretraining.build import build_learner, build_method
from scfs.training.precision import Precision
from scfs.view_batch import ViewBatch

CUDA = torch.device("cuda")
PACKAGE = f"{Path(scfs.__file__).parent}{os.sep}"
IMAGES = 4
VIT = {"backbone__name": "vit_tiny_patch16_224", "optim__name": "adamw", "views__local_size": 32}
POOLED = {"method__out_dim": "auto", "method__search_head": "pooled"}
# Operators whose result the host needs before it can go on: a number, or a shape.
WAITING = {"_local_scalar_dense", "nonzero", "masked_select", "unique_consecutive", "_unique2", "equal", "bincount"}


class HostSyncs(TorchDispatchMode):
    """Counts what makes the host wait for the device, by operator; reading a number gives 1."""

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, kwargs = operator.overloadpacket.__name__, kwargs or {}
        tensors = [each for each in args if isinstance(each, torch.Tensor)]
        on_device = any(each.device.type == "cuda" for each in tensors)
        if name in WAITING and on_device:
            self.add(name)
        if name == "_local_scalar_dense":
            return 1.0
        if name.startswith("_fused_"):  # optimizers, which have no kernel for tensors without values
            return None
        if name == "_to_copy" and not kwargs.get("non_blocking"):
            target = torch.device(kwargs.get("device") or args[0].device).type
            if target != args[0].device.type:
                self.add(f"copy to {target}")
        if name == "copy_" and len({each.device.type for each in tensors}) > 1 and not (args[2:3] or kwargs):
            self.add(f"copy to {args[0].device.type}")
        return operator(*args, **kwargs)

    def add(self, name: str) -> None:
        """Count a sync, by the last line of the package that is on the stack."""
        lines = [
            f"{Path(each.filename).name}:{each.lineno}" for each in extract_stack() if each.filename.startswith(PACKAGE)
        ]
        self.found[" in ".join([name, *lines[-1:]])] += 1


@pytest.fixture
def syncs(monkeypatch):
    """A function that counts the syncs of a step with some settings."""
    counter = HostSyncs()

    def tolist(self: torch.Tensor) -> list[float]:
        counter.found["tolist"] += self.device.type == "cuda"
        return [1.0] * self.numel()

    def backward(self: Precision, _: torch.Tensor) -> None:  # autograd cannot run on CUDA without a driver
        self.scaler.scale(torch.ones((), device=CUDA))
        for group in learners[0].optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = torch.empty_like(parameter)

    learners: list[Any] = []
    monkeypatch.setattr(FakeTensor, "tolist", tolist)
    monkeypatch.setattr(Precision, "backward", backward)
    monkeypatch.setattr(nn.Module, "to", lambda self, *_, **__: self)  # it is there already
    monkeypatch.setattr("torch.cuda.amp.common.amp_definitely_not_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda *_, **__: True)

    def count(config: Any) -> dict[str, int]:
        method = build_method(config)  # with values: drawing truncated normal weights looks at them
        with warnings.catch_warnings(), FakeTensorMode(allow_non_fake_inputs=True), counter:
            warnings.simplefilter("ignore")  # that there is no GPU
            without_values(method)
            learners[:] = [build_learner(config, method, CUDA, num_images=3 * IMAGES)]
            batch = [LoadedViews(views(config), []) for _ in range(config.optim.accumulate)]
            learners[0].step(batch, 0)  # the first step creates the optimizer's state
            counter.found.clear()
            numbers = learners[0].step(batch, 1)
        assert "loss" in numbers
        return {name: number for name, number in counter.found.items() if number}

    return count


def without_values(module: nn.Module) -> None:
    """Replace parameters and buffers by others of the same shape on the device."""
    for each in module.modules():
        for name, value in each._parameters.items():
            if value is not None:
                empty = torch.empty(value.shape, dtype=value.dtype, device=CUDA)
                each._parameters[name] = nn.Parameter(empty, requires_grad=value.requires_grad)
        for name, value in each._buffers.items():
            each._buffers[name] = None if value is None else torch.empty(value.shape, dtype=value.dtype, device=CUDA)


def views(config: Any) -> ViewBatch:
    """A batch on the host, as the loader makes it."""
    counts = {"global": 2, "local": config.num_local_views}
    sides = {"global": config.views.global_size, "local": config.views.local_size}
    pixels = [torch.empty(n, IMAGES, 3, sides[kind], sides[kind], dtype=torch.uint8) for kind, n in counts.items()]
    boxes = [torch.empty(n, IMAGES, 4) for n in counts.values()]
    flips = [torch.empty(n, IMAGES, dtype=torch.bool) for n in counts.values()]
    return ViewBatch(*pixels, *boxes, *flips, torch.empty(0, 0, 0))


CASES = [
    *({"method__contrast": mode} for mode in PLANS),
    *({"method__contrast": mode, **VIT} for mode in PLANS),
    *({"optim__precision": name} for name in ("bfloat16", "float16")),
    *({"optim__precision": name, **VIT} for name in ("bfloat16", "float16")),
    *({"optim__name": name} for name in ("adamw", "lars", "muon")),
    *({"optim__clip": name} for name in ("total", "off")),
    *({"method__objective": name, **POOLED} for name in ("info-nce", "coding-rate", "vicreg")),
    {"optim__accumulate": 2},
    {"method__variant": "released"},
    {"method__objective": "info-nce", **POOLED, "method__targets": "student", "method__multilayer": True},
    {"method__centering": "sinkhorn"},
]


@pytest.mark.parametrize("change", [*ADJUST.values(), blur], ids=lambda change: change.__name__)
def test_no_colour_change_waits(change):
    with FakeTensorMode(), HostSyncs() as counter:
        levels, factors = torch.empty(IMAGES, 3, 8, 8, device=CUDA), torch.empty(IMAGES, 1, 1, 1, device=CUDA)
        assert change(levels, factors).shape == levels.shape
    assert not counter.found


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case.values())))
def test_the_host_waits_once_per_step(syncs, tiny, case):
    assert syncs(tiny(**case)) == {"tolist": 1}


def test_waiting_is_counted():
    counter = HostSyncs()
    with FakeTensorMode(allow_non_fake_inputs=True), counter:
        values = torch.ones(3, device=CUDA)
        assert float(values[0]) == 1.0
        values.cpu()
        torch.ones(3).to(CUDA, non_blocking=True)
        torch.ones(3).to(CUDA)
        with pytest.raises(Exception, match="nonzero"):
            values.nonzero()
    assert dict(counter.found) == {"_local_scalar_dense": 1, "copy to cpu": 1, "copy to cuda": 1, "nonzero": 1}
