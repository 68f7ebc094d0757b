from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from torchvision.models.detection import FasterRCNN

from scfs.data.annotated_loader import AnnotatedBatch, AnnotatedImage
from scfs.data.loader import derive_seed
from scfs.distributed import no_sync, parallel, rank
from scfs.training.batch_norm import sync_batch_norms
from scfs.training.convolution import use_gemm_weight_gradients
from scfs.training.optim import build_optimizer, load_optimizer, set_rates
from scfs.training.precision import Precision
from scfs.training.update import update

NOT_FINITE = "lower --lr, raise --warmup_steps, or set --clip_norm"


class DetectorLearner:
    """Trains a whole detector with SGD, its batch norms synchronised over processes."""

    def __init__(
        self,
        detector: FasterRCNN,
        *,
        schedule: Callable[[int], float],
        weight_decay: float,
        clip_norm: float | None,
        precision: str,
        device: torch.device,
        seed: int,
    ):
        """schedule: the learning rate of a step. clip_norm: None for no clipping."""
        self.detector = sync_batch_norms(detector.to(device), device).train()
        if device.type == "cpu":
            use_gemm_weight_gradients(self.detector)
        self.module = parallel(self.detector, device)
        self.optimizer = build_optimizer("sgd", self.detector)
        self.precision, self.device, self.seed = Precision(precision, device), device, seed
        self.schedule, self.weight_decay, self.clip_norm = schedule, weight_decay, clip_norm

    def step(self, batch: Sequence[AnnotatedBatch], step: int) -> dict[str, float]:
        """Take a step on this process's micro-batches, unless the loss or a gradient is not finite."""
        torch.manual_seed(derive_seed(self.seed, step, rank()))  # sizes of images, sampled anchors and regions
        rate = self.schedule(step)
        set_rates(self.optimizer, lr=rate, weight_decay=self.weight_decay)
        self.optimizer.zero_grad()
        values = self._backward(batch)
        numbers, _ = update(
            self.detector,
            self.optimizer,
            self.precision,
            values,
            step=step,
            remedy=NOT_FINITE,
            clip="off" if self.clip_norm is None else "total",
            clip_norm=self.clip_norm or 0.0,
        )
        return numbers | {"lr": rate}

    def _backward(self, batch: Sequence[AnnotatedBatch]) -> dict[str, Tensor]:
        """Accumulate gradients, synchronising processes at the last micro-batch; returns the mean losses."""
        found = list[dict[str, Tensor]]()
        for number, micro_batch in enumerate(batch, start=1):
            images = [each.image.to(self.device, non_blocking=True).float() / 255 for each in micro_batch.images]
            targets = [as_target(each, self.device) for each in micro_batch.images]
            with nullcontext() if number == len(batch) else no_sync(self.module):
                with self.precision.autocast():
                    losses = self.module(images, targets)
                loss = torch.stack(list(losses.values())).sum()
                self.precision.backward(loss / len(batch))
            found.append({"loss": loss.detach(), **{_logged(name): value.detach() for name, value in losses.items()}})
        return {name: torch.stack([each[name] for each in found]).mean() for name in found[0]}

    def state_dict(self) -> dict[str, Any]:
        """Detector, optimizer and loss scale."""
        return {
            "detector": self.detector.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "precision": self.precision.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self.detector.load_state_dict(state["detector"])
        load_optimizer(self.optimizer, state["optimizer"])
        self.precision.load_state_dict(state["precision"])


def as_target(annotated: AnnotatedImage, device: torch.device) -> dict[str, Tensor]:
    """The objects of an image as torchvision's detectors expect them: label 0 is the background."""
    target = {"boxes": annotated.boxes.to(device), "labels": 1 + annotated.labels.to(device)}
    if annotated.masks is not None:
        target["masks"] = annotated.masks.to(device)
    return target


def _logged(name: str) -> str:
    """Torchvision's loss_rpn_box_reg is loss/rpn_box_reg in logs."""
    return name.replace("loss_", "loss/", 1)
