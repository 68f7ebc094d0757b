"""Ten steps of the real thing at a fixed seed: the losses are stored and must not move.

In float64 from initialisation on, so that other kernels stay far below the tolerance. After a change that is meant
to move them (or a new version of torch or timm that initialises otherwise), store them again and say why in the commit:

    python tests/method/test_curve.py
"""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from scfs.backbones import Backbone
from scfs.method.encoder import Encoder
from scfs.method.heads import ProjectionHead, SearchHead
from scfs.method.scfs import SCFS
from scfs.view_batch import ViewBatch

PATH = Path(__file__).parent / "curve.json"
IMAGES, LOCAL_VIEWS, STEPS = 4, 2, 10


def make_model(variant: str) -> SCFS:
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)  # torch's float32 normals depend on the CPU, in their last digits
    try:
        torch.manual_seed(0)
        backbone = Backbone("resnet10_half")
        head = ProjectionHead(backbone.num_features, 64, hidden_dim=64, bottleneck_dim=32)
        search_heads = [SearchHead(c, 32, hidden_dim=64, bottleneck_dim=16) for c in backbone.channels]
        student = Encoder(backbone, head, search_heads)
        return SCFS(student, layers=backbone.layers, contrast="scfs", variant=variant).train()
    finally:
        torch.set_default_dtype(default)


def draw_batch(random: np.random.RandomState) -> ViewBatch:
    def whole(views: int) -> torch.Tensor:
        return torch.tensor([0.0, 0.0, 1.0, 1.0], dtype=torch.float64).expand(views, IMAGES, 4)

    return ViewBatch(
        torch.from_numpy(random.randn(2, IMAGES, 3, 64, 64)),
        torch.from_numpy(random.randn(LOCAL_VIEWS, IMAGES, 3, 32, 32)),
        whole(2),
        whole(LOCAL_VIEWS),
        torch.zeros(2, IMAGES, dtype=torch.bool),
        torch.zeros(LOCAL_VIEWS, IMAGES, dtype=torch.bool),
    )


def curve(variant: str) -> dict[str, list[float]]:
    """Every named loss of ten steps, each on new views."""
    model, random = make_model(variant), np.random.RandomState(0)
    optimizer = torch.optim.SGD(model.student.parameters(), lr=0.05, momentum=0.9)
    losses: dict[str, list[float]] = {}
    for _ in range(STEPS):
        found = model(draw_batch(random), 0.04).losses
        optimizer.zero_grad()
        torch.stack(list(found.values())).sum().backward()
        optimizer.step()
        for center in model.centers():
            center.commit()
        model.update_teacher(0.99)
        for name, loss in found.items():
            losses.setdefault(name, []).append(loss.item())
    return losses


@pytest.mark.parametrize("variant", ["paper", "released"])
def test_losses_of_ten_steps(variant):
    expected = json.loads(PATH.read_text())[variant]
    found = curve(variant)
    assert found.keys() == expected.keys()
    for name, values in found.items():
        assert values == pytest.approx(expected[name], rel=1e-6), name


if __name__ == "__main__":
    PATH.write_text(json.dumps({variant: curve(variant) for variant in ("paper", "released")}, indent=1) + "\n")
    print(PATH)
