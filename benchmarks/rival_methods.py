"""The methods that rivals.py compares: lightly's losses and heads, and this package's own method.

Rivals are composed as in lightly's documentation and its Imagenette benchmark, with the heads, optimizers and
learning rates (per 256 images) given there. Differences: SimCLR's temperature is 0.1 (there 0.5), multi-crop has 4
local views (there 6 or 8), colours are this package's, without blur, and crops are those of cpu_imagenette for two
views and those of the paper's released code for multi-crop. All share what is not part of the method: backbone,
rendering of views, precision. Rivals are scored by the network that lightly scores, the student; this package's runs
by the one that it exports, the moving average.
"""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from lightly.loss import DINOLoss, NegativeCosineSimilarity, NTXentLoss, SwaVLoss, VICRegLoss
from lightly.models.modules import heads
from lightly.models.utils import update_momentum
from rival_settings import OURS, RIVAL_BATCH_SIZE, RIVAL_VIEWS
from timm.optim.lars import Lars
from torch import Tensor, nn

from scfs.backbones import Backbone
from scfs.config import Config
from scfs.data.views import normalize_views
from scfs.pretraining.auto import resolve
from scfs.pretraining.build import build_learner, build_method
from scfs.pretraining.step import schedule_at
from scfs.recipe import check, read_toml
from scfs.training.convolution import use_gemm_weight_gradients
from scfs.training.precision import Precision
from scfs.view_batch import ViewBatch

CPU = torch.device("cpu")


class Siamese(nn.Module):
    """A backbone in training with the heads of a method; `loss` takes float views (V, B, 3, H, W)."""

    def __init__(self, backbone: Backbone):
        super().__init__()
        self.backbone, self.dim, self.epoch = backbone, backbone.num_features, 0

    def features(self, backbone: nn.Module, views: Tensor) -> list[Tensor]:
        """Pooled features (B, C) of each view; views of the same size in one pass."""
        return list(backbone(views.flatten(0, 1))[0].unflatten(0, views.shape[:2]))

    def loss(self, batch: ViewBatch) -> Tensor:
        raise NotImplementedError

    def criterion_of(self, *outputs: Any, **options: Any) -> Tensor:
        """The loss of float32 outputs: under autocast its products would be in bfloat16."""
        with torch.autocast("cpu", enabled=False):
            return self.criterion(*_as_float32(outputs), **options)


class SimCLR(Siamese):
    """Distinguish the other view of an image from views of other images."""

    def __init__(self, backbone: Backbone):
        super().__init__(backbone)
        self.head, self.criterion = heads.SimCLRProjectionHead(self.dim, self.dim, 128), NTXentLoss(temperature=0.1)

    def loss(self, batch: ViewBatch) -> Tensor:
        first, second = (self.head(each) for each in self.features(self.backbone, batch.global_views))
        return self.criterion_of(first, second)


class BYOL(Siamese):
    """Predict a moving average's output for the other view."""

    def __init__(self, backbone: Backbone):
        super().__init__(backbone)
        self.head = heads.BYOLProjectionHead(self.dim, 4096, 256)
        self.predictor, self.criterion = heads.BYOLPredictionHead(256, 4096, 256), NegativeCosineSimilarity()
        self.teacher = copy.deepcopy(backbone).requires_grad_(False)
        self.teacher_head = copy.deepcopy(self.head).requires_grad_(False)

    def loss(self, batch: ViewBatch) -> Tensor:
        update_momentum(self.backbone, self.teacher, m=0.99)
        update_momentum(self.head, self.teacher_head, m=0.99)
        student = [self.predictor(self.head(each)) for each in self.features(self.backbone, batch.global_views)]
        with torch.no_grad():
            teacher = [self.teacher_head(each) for each in self.features(self.teacher, batch.global_views)]
        return (self.criterion_of(student[0], teacher[1]) + self.criterion_of(student[1], teacher[0])) / 2


class VICReg(Siamese):
    """Pull views together, keep outputs spread and uncorrelated."""

    def __init__(self, backbone: Backbone):
        super().__init__(backbone)
        self.head, self.criterion = heads.VICRegProjectionHead(self.dim, 2048, 2048), VICRegLoss()

    def loss(self, batch: ViewBatch) -> Tensor:
        first, second = (self.head(each) for each in self.features(self.backbone, batch.global_views))
        return self.criterion_of(first, second)


class SwAV(Siamese):
    """Predict the other view's assignment to balanced prototypes."""

    def __init__(self, backbone: Backbone):
        super().__init__(backbone)
        self.head = heads.SwaVProjectionHead(self.dim, 2048, 128)
        self.prototypes, self.criterion = heads.SwaVPrototypes(128, 3000), SwaVLoss()

    def loss(self, batch: ViewBatch) -> Tensor:
        self.prototypes.normalize()
        large, small = (
            [self.prototypes(F.normalize(self.head(each), dim=1)) for each in self.features(self.backbone, views)]
            for views in (batch.global_views, batch.local_views)
        )
        return self.criterion_of(large, small)


class DINO(Siamese):
    """Match a moving average's softmax, with multi-crop."""

    def __init__(self, backbone: Backbone):
        super().__init__(backbone)
        make = lambda: heads.DINOProjectionHead(self.dim, 2048, 256, 2048, batch_norm=True)  # noqa: E731
        self.head, self.teacher_head = make(), make().requires_grad_(False)
        self.teacher_head.load_state_dict(self.head.state_dict())
        self.teacher, self.criterion = copy.deepcopy(backbone).requires_grad_(False), DINOLoss(output_dim=2048)

    def loss(self, batch: ViewBatch) -> Tensor:
        update_momentum(self.backbone, self.teacher, m=0.99)
        update_momentum(self.head, self.teacher_head, m=0.99)
        with torch.no_grad():
            teacher = [self.teacher_head(each) for each in self.features(self.teacher, batch.global_views)]
        student = [
            self.head(each)
            for views in (batch.global_views, batch.local_views)
            for each in self.features(self.backbone, views)
        ]
        return self.criterion_of(teacher, student, epoch=self.epoch)


def _as_float32(outputs: Any) -> Any:
    return outputs.float() if isinstance(outputs, Tensor) else [_as_float32(each) for each in outputs]


def sgd(module: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(_trained(module), lr=0.0, momentum=0.9, weight_decay=5e-4)


def adam(module: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(_trained(module), lr=0.0, weight_decay=1e-6)


def lars(module: nn.Module) -> torch.optim.Optimizer:
    return Lars(_trained(module), lr=0.0, momentum=0.9, weight_decay=1e-4, always_adapt=True)


def _trained(module: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


@dataclass(frozen=True)
class Published:
    """A rival with the heads, optimizer and learning rate that lightly publishes for Imagenette."""

    build: Callable[[Backbone], Siamese]
    optimizer: Callable[[nn.Module], torch.optim.Optimizer]
    lr: float  # for a batch of 256
    warmup: float = 0.0  # fraction of the run


RIVALS = {
    "simclr": Published(SimCLR, sgd, 0.06),
    "byol": Published(BYOL, sgd, 0.06),
    "vicreg": Published(VICReg, lars, 0.3, warmup=0.1),
    "swav": Published(SwAV, adam, 1e-3),
    "lightly-dino": Published(DINO, sgd, 0.06),
}


class LightlyRun:
    """A rival in training, with a cosine schedule, as published."""

    def __init__(self, name: str, *, epochs: int, lr_factor: float, precision: str):
        self.published, self.epochs = RIVALS[name], epochs
        self.crops = RIVAL_VIEWS[name]
        self.module = self.published.build(Backbone("resnet10_half")).to(memory_format=torch.channels_last).train()
        use_gemm_weight_gradients(self.module)
        self.optimizer, self.precision = self.published.optimizer(self.module), Precision(precision, CPU)
        self.peak, self.batch_size = self.published.lr * lr_factor, RIVAL_BATCH_SIZE

    @property
    def backbone(self) -> Backbone:
        """The network to score; lightly scores the student."""
        return self.module.backbone

    def step(self, batch: ViewBatch, step: int, steps_per_epoch: int) -> None:
        total, warmup = self.epochs * steps_per_epoch, self.published.warmup
        progress = step / total
        rise = min(1.0, (progress + 1 / total) / warmup) if warmup else 1.0
        for group in self.optimizer.param_groups:
            group["lr"] = self.peak * rise * (1 + math.cos(math.pi * progress)) / 2
        self.optimizer.zero_grad(set_to_none=True)
        self.module.epoch = step // steps_per_epoch
        with self.precision.autocast():
            loss = self.module.loss(normalize_views(batch))
        loss.backward()
        self.optimizer.step()

    def state_dict(self) -> dict[str, Any]:
        return {"module": self.module.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.module.load_state_dict(state["module"])
        self.optimizer.load_state_dict(state["optimizer"])


class OurRun:
    """Our method with a recipe's settings, trained as in `scfs pretrain`."""

    def __init__(self, name: str, *, num_images: int, epochs: int, lr_factor: float, precision: str):
        recipe, changes = OURS[name]
        values = read_toml(recipe)
        changes = {"optim.precision": precision, **changes, "optim.epochs": epochs, "run.device": "cpu"}
        config = check(Config, values, changes)
        rates = {"optim.lr": config.optim.lr * lr_factor, "optim.final_lr": config.optim.final_lr * lr_factor}
        self.config, _ = resolve(check(Config, values, {**changes, **rates}), num_images, CPU)
        self.crops, self.batch_size = self.config.crops, self.config.optim.batch_size
        self.learner = build_learner(self.config, build_method(self.config), CPU, num_images=num_images)

    @property
    def backbone(self) -> Backbone:
        """The network to score, as in `scfs knn`: the teacher."""
        return self.learner.method.teacher.backbone  # type: ignore[return-value]

    def step(self, batch: ViewBatch, step: int, steps_per_epoch: int) -> None:
        self.learner.update([batch], schedule_at(self.config, step, steps_per_epoch))

    def state_dict(self) -> dict[str, Any]:
        return self.learner.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.learner.load_state_dict(state)


def make_run(name: str, *, num_images: int, epochs: int, lr_factor: float, precision: str) -> LightlyRun | OurRun:
    """A method by its name, ready for its first step."""
    if name in OURS:
        return OurRun(name, num_images=num_images, epochs=epochs, lr_factor=lr_factor, precision=precision)
    return LightlyRun(name, epochs=epochs, lr_factor=lr_factor, precision=precision)
