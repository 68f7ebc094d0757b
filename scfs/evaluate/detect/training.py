from collections.abc import Iterator
from functools import partial

import torch
from rich.console import Console
from torchvision.models.detection import FasterRCNN

from scfs.data.annotated_loader import AnnotatedBatch, AnnotatedDataset, collate
from scfs.data.loader import training_batches
from scfs.data.sources import AnnotatedSource
from scfs.data.unreadable import show_replaced
from scfs.distributed import per_process
from scfs.errors import UserError
from scfs.evaluate.detect.learner import DetectorLearner
from scfs.evaluate.detect.models import DetectorSpec
from scfs.evaluate.detect.plan import resolve_warmup
from scfs.evaluate.detect.settings import Detect
from scfs.evaluate.sharding import usable_batch_size
from scfs.training.loop import TrainingPlan
from scfs.training.resumable import TrainingFiles, fit
from scfs.training.schedules import stepped

USUAL_BATCH = 16  # images, for which learning rates are given


def plan_training(settings: Detect, num_images: int) -> TrainingPlan:
    """How long to train on images with objects; bad numbers of images, processes and micro-batches are refused."""
    if not num_images:
        raise UserError(f"No train image of {settings.data} has an object; give images with boxes.")
    batch_size = usable_batch_size(settings.batch_size, num_images)
    if batch_size % settings.accumulate:
        raise UserError(
            f"A step has {batch_size} images, which are not divisible by --accumulate {settings.accumulate}."
        )
    per_process(batch_size // settings.accumulate, "batch_size / accumulate")
    steps_per_epoch = num_images // batch_size
    total_steps = settings.steps or settings.epochs * steps_per_epoch
    return TrainingPlan(
        steps_per_epoch, total_steps, batch_size, shown=lambda name: name in ("loss", "lr") or name.startswith("loss/")
    )


def train_detector(
    detector: FasterRCNN,
    spec: DetectorSpec,
    source: AnnotatedSource,
    settings: Detect,
    *,
    device: torch.device,
    files: TrainingFiles,
    console: Console,
) -> FasterRCNN:
    """Train a detector on images with objects, or resume its training."""
    plan = plan_training(settings, len(source))
    schedule = partial(
        stepped,
        start=settings.lr * plan.batch_size / USUAL_BATCH,
        drops=[round(fraction * plan.total_steps) for fraction in settings.drops],
        warmup_steps=resolve_warmup(settings, plan.total_steps),
    )
    learner = DetectorLearner(
        detector,
        schedule=schedule,
        weight_decay=settings.weight_decay,
        clip_norm=None if settings.clip_norm == "off" else settings.clip_norm,
        precision=settings.precision,
        device=device,
        seed=settings.seed,
    )

    def batches(first_step: int) -> Iterator[list[AnnotatedBatch]]:
        micro_batches = training_batches(
            AnnotatedDataset(source, settings.seed, with_masks=spec.has_masks),
            batch_size=plan.batch_size,
            epochs=plan.epochs,
            start_step=first_step,
            workers=settings.workers,
            device=device,
            on_unreadable=show_replaced(console),
            micro_batches=settings.accumulate,
            collate=collate,
        )
        return (list(batch) for batch in zip(*[micro_batches] * settings.accumulate, strict=True))

    fit(learner, batches, plan, files=files, console=console)
    return learner.detector
