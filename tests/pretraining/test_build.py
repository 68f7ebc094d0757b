"""The learner that settings describe."""

import pytest
import torch

from scfs.pretraining.build import build_learner, build_method, hints
from scfs.training.optim import set_rates


def test_only_the_backbone_has_a_rate_of_its_own(tiny):
    config = tiny(optim__name="muon", optim__backbone_lr_scale=0.25)
    learner = build_learner(config, build_method(config), torch.device("cpu"), num_images=12)
    set_rates(learner.optimizer, lr=0.4, weight_decay=0.0)
    rates = {p: group["lr"] for group in learner.optimizer.param_groups for p in group["params"]}
    inside = {*learner.method.student.backbone.parameters()}
    assert rates == {p: 0.1 if p in inside else 0.4 for p in learner.method.student.parameters() if p.requires_grad}


@pytest.mark.parametrize(
    ("device", "name", "hinted"),
    [("cuda", "resnet10_half", True), ("cuda", "resnet18", False), ("cpu", "resnet10_half", False)],
)
def test_a_network_for_cpus_gets_a_hint_on_a_gpu(tiny, device, name, hinted):
    config = tiny(backbone__name=name)
    assert (
        any("--backbone.name resnet50" in hint for hint in hints(config, build_method(config), torch.device(device)))
        == hinted
    )
