import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scfs.backbones import Backbone
from scfs.data.loader import LabelledViews
from scfs.data.views import normalize
from scfs.distributed import parallel
from scfs.training.batch_norm import sync_batch_norms
from scfs.training.convolution import use_gemm_weight_gradients
from scfs.training.optim import build_optimizer, set_rates
from scfs.training.precision import Precision
from scfs.training.schedules import cosine
from scfs.training.update import update

NOT_FINITE = "lower --rates, or omit the highest"


class Classifier(nn.Module):
    """A backbone and a linear layer on its pooled feature."""

    def __init__(self, backbone: Backbone, num_classes: int):
        super().__init__()
        self.backbone = backbone
        self.head = nn.Linear(backbone.num_features, num_classes)
        nn.init.trunc_normal_(self.head.weight, std=0.01)
        nn.init.zeros_(self.head.bias)

    def forward(self, images: Tensor) -> Tensor:
        """images: (B, 3, H, W) -> logits (B, classes)."""
        logits: Tensor = self.head(self.backbone(images)[0])
        return logits


class ClassifierLearner:
    """Fine-tunes a whole network as SimCLR does: SGD with Nesterov momentum, and a cosine schedule to 0."""

    def __init__(
        self,
        backbone: Backbone,
        num_classes: int,
        *,
        rate: float,
        weight_decay: float,
        steps_per_epoch: int,
        total_steps: int,
        precision: str,
        device: torch.device,
        seed: int,
    ):
        """The backbone is copied. rate: the initial learning rate, for this batch size."""
        torch.manual_seed(seed)
        classifier = Classifier(copy.deepcopy(backbone), num_classes).to(device)
        classifier = classifier.to(memory_format=torch.channels_last)
        for norm in classifier.modules():
            if isinstance(norm, nn.BatchNorm2d):
                # SimCLR's: running statistics average over a tenth of an epoch, or ten steps if that is more.
                norm.momentum = 1 - max(1 - 10 / steps_per_epoch, 0.9)
        self.classifier = sync_batch_norms(classifier, device).train()
        if device.type == "cpu":
            use_gemm_weight_gradients(self.classifier)
        self.module = parallel(self.classifier, device)
        self.optimizer = build_optimizer("sgd", self.classifier, nesterov=True)
        self.rate, self.weight_decay, self.total_steps = rate, weight_decay, total_steps
        self.precision, self.device = Precision(precision, device), device

    def step(self, batch: LabelledViews, step: int) -> dict[str, float]:
        """Take a step on this process's images, unless the loss or a gradient is not finite."""
        rate = cosine(step, self.total_steps, start=self.rate, end=0.0)
        set_rates(self.optimizer, lr=rate, weight_decay=self.weight_decay)
        images = normalize(batch.views.to(self.device, non_blocking=True))
        with self.precision.autocast():
            loss = F.cross_entropy(self.module(images).float(), batch.labels.to(self.device))
        self.optimizer.zero_grad()
        self.precision.backward(loss)
        numbers, _ = update(
            self.classifier, self.optimizer, self.precision, {"loss": loss.detach()}, step=step, remedy=NOT_FINITE
        )
        return numbers | {"lr": rate}

    def state_dict(self) -> dict[str, Any]:
        """Network, optimizer and loss scale."""
        return {
            "classifier": self.classifier.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "precision": self.precision.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        for name, saved in state.items():
            getattr(self, name).load_state_dict(saved)
