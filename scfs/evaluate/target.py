import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import nn

from scfs.backbones import Backbone, Loaded, fingerprint, load_backbone
from scfs.data.locations import absolute_path, absolute_source
from scfs.data.same_images import refuse_different_images
from scfs.data.sources import Source, open_labelled
from scfs.errors import UserError
from scfs.evaluate.features import Extracted, extract_with_progress
from scfs.evaluate.knn.layers import LayerFeatures
from scfs.evaluate.own_data import own_data
from scfs.evaluate.settings import Evaluation, Target
from scfs.runs.files import digest_of
from scfs.runs.layout import environment
from scfs.runs.metric import Metric
from scfs.runs.results import Result, protocol_of
from scfs.training.resumable import FREE, TrainingFiles


@dataclass(frozen=True)
class EvalTarget:
    """A backbone to score, and the labelled images to score it on."""

    target: str
    backbone: Backbone
    size: int
    train: Source
    val: Source
    device: torch.device

    @property
    def classes(self) -> tuple[str, ...]:
        return self.train.classes

    def resolved(self, settings: Target) -> dict[str, Any]:
        """The settings and what they resolved to: weights, size, numbers of images. If equal, the work is the same."""
        resolved = {
            "target": self.target,
            "weights": fingerprint(self.backbone),
            "size": self.size,
            "train_images": len(self.train),
            "val_images": len(self.val),
            "class_names": digest_of(self.classes),
        }
        return with_absolute_paths(settings) | resolved

    def result(
        self,
        evaluation: str,
        metrics: Sequence[Metric],
        resolved: dict[str, Any],
        *,
        start: float,
        variant: str = "",
        details: dict[str, Any] | None = None,
    ) -> Result:
        """The result to record for an evaluation that began at `start` (time.perf_counter).

        variant: of the protocol, such as "cached" or the labels used.
        """
        return Result(
            evaluation,
            metrics,
            data=resolved["data"],
            protocol=", ".join(filter(None, (variant, protocol_of(resolved)))),
            settings=resolved,
            details=details or {},
            seconds=time.perf_counter() - start,
            environment=environment(self.device),
        )

    def training_files(self, evaluation: str, settings: Target, folder: Path | None) -> TrainingFiles | None:
        """State and curves of a training, named by settings and weights, so that each one of a run has its own.

        The curves stay, in EVALUATION_DIGEST next to those of the run; the same training again overwrites them.
        """
        if folder is None:
            return None
        known = self.resolved(settings)
        digest = digest_of({name: value for name, value in known.items() if name not in FREE})
        return TrainingFiles(folder / f"{evaluation}_state_{digest}.pt", folder / f"{evaluation}_{digest}", known)

    def features(
        self, settings: Evaluation, console: Console, *, all_layers: bool
    ) -> tuple[LayerFeatures, list[Extracted]]:
        """Final features of the centre views of train and val images and, if requested, those of every search layer."""
        network = LayerFeatures(self.backbone, all_layers=all_layers)
        sources = (self.train, self.val)
        return network, self.extract(network, sources, settings, console, batch_size=settings.batch_size)

    def extract(
        self,
        network: nn.Module,
        sources: Sequence[Source],
        settings: Evaluation,
        console: Console,
        *,
        batch_size: int = 128,
    ) -> list[Extracted]:
        """Features of the centre views of images. The batch size need not be that of training."""
        return extract_with_progress(
            network,
            sources,
            size=self.size,
            batch_size=batch_size,
            workers=settings.workers,
            device=self.device,
            console=console,
        )

    def __str__(self) -> str:
        return f"{self.target}: {len(self.train)} train and {len(self.val)} val images at {self.size} px"


def open_eval_target(target: str, settings: Evaluation, device: torch.device, console: Console) -> EvalTarget:
    """Load the backbone of a run or of weights and open the images; prints the load report of foreign weights."""
    loaded = load_evaluated(target, settings)
    if not settings.data:
        raise UserError(f"{target} is not a run with its own images; give labelled images with --data.")
    train, val = open_labelled(settings.data, classes=settings.classes, max_pixels=own_data(target).max_pixels)
    refuse_different_images(train, val)
    size = loaded.evaluated_size(settings.size)
    show_report(loaded, console)
    return EvalTarget(target, loaded.backbone.to(device), size, train, val, device)


def with_absolute_paths(settings: Target) -> dict[str, Any]:
    """The settings by name, with absolute paths, so that what is recorded holds in any working directory."""
    given = settings.model_dump(mode="json")
    paths = {"data": absolute_source(settings.data)}
    if "classes" in given:
        paths["classes"] = absolute_path(given["classes"])
    return given | paths


def load_evaluated(target: str, settings: Target) -> Loaded:
    """The backbone to score."""
    return load_backbone(target, name=settings.backbone or None, network=settings.network, seed=settings.seed)


def show_report(loaded: Loaded, console: Console) -> None:
    """Print the load report of foreign weights."""
    if loaded.report is not None:
        console.print(str(loaded.report))
