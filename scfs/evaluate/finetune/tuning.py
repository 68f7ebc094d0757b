import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from rich.console import Console
from torch import Tensor

from scfs import distributed
from scfs.data.loader import CropDataset, LabelledViews, training_batches
from scfs.data.selection import Subset, hold_out, split_by
from scfs.data.sources import Source
from scfs.data.unreadable import show_replaced
from scfs.errors import UserError
from scfs.evaluate.accuracy import Accuracy
from scfs.evaluate.finetune.classifier import NOT_FINITE, Classifier, ClassifierLearner
from scfs.evaluate.finetune.folder import read_grid, write_grid
from scfs.evaluate.finetune.settings import Finetune
from scfs.evaluate.knn.neighbours import ranked_hits
from scfs.evaluate.sharding import usable_batch_size
from scfs.evaluate.target import EvalTarget
from scfs.training.gradients import NotFiniteError
from scfs.training.loop import TrainingPlan
from scfs.training.resumable import TrainingFiles, fit

PER_CLASS = ("aircraft", "pets")  # data sets whose protocol averages over classes


class Cell(NamedTuple):
    """A learning rate per 256 images, and a weight decay."""

    rate: float
    weight_decay: float

    def __str__(self) -> str:
        return f"rate {self.rate:g}, weight decay {self.weight_decay:g}"


class Scored(NamedTuple):
    """What a classifier predicts for images, and its accuracy."""

    accuracy: Accuracy
    predictions: Tensor  # (images,) indices of classes
    labels: Tensor  # (images,)


@dataclass(frozen=True)
class Tuning:
    """A backbone and labelled images that are ready for fine-tuning."""

    eval_target: EvalTarget
    source: Source  # the images whose labels may be used
    settings: Finetune
    console: Console

    def __post_init__(self) -> None:
        for source in (self.source, self.split()[0]) if len(self.cells) > 1 else (self.source,):
            self.batch_size(source)  # so that bad input is refused now

    @property
    def cells(self) -> list[Cell]:
        """All pairs of a rate and a weight decay to try."""
        return [Cell(*pair) for pair in itertools.product(self.settings.rates, self.settings.weight_decays)]

    @property
    def metric(self) -> str:
        """As set, or that of the data set's protocol."""
        if self.settings.metric != "auto":
            return self.settings.metric
        kind, colon, _ = self.settings.data.partition(":")
        return "per_class" if colon and kind in PER_CLASS else "top1"

    def split(self) -> tuple[Subset, Subset]:
        """Images to train the cells on, and held-out images to score them on."""
        return split_by(self.source, hold_out(self.source, self.settings.held_out, self.settings.seed))

    def batch_size(self, source: Source) -> int:
        """As set or, with fewer images, as many as split evenly over processes."""
        batch_size = usable_batch_size(self.settings.batch_size, len(source))
        if batch_size < 2:
            raise UserError(f"{len(source)} labelled image is too few to train on; label more of them.")
        return batch_size

    def choose(self, folder: Path) -> Cell:
        """The best cell on held-out images, which are not trained on."""
        cells, console = self.cells, self.console
        if len(cells) == 1:
            return cells[0]
        rest, held_out = self.split()
        scores = distributed.on_rank_zero(lambda: read_grid(folder))
        for number, cell in enumerate(cells):
            if str(cell) in scores:
                continue
            files = self.files(folder, f"state_{number}.pt", f"cell_{number}")
            try:
                _, scored = self.train_and_score(cell, rest, held_out, files=files, title=str(cell))
                scores[str(cell)] = scored.accuracy.top1
                outcome = f"{scores[str(cell)]:.1%} of {len(held_out)} held-out images"
            except NotFiniteError as error:  # other pairs may train well
                scores[str(cell)], outcome = None, f"left out. {error}"
            distributed.on_rank_zero(lambda: write_grid(folder, scores))
            files.remove_state()
            console.print(f"{cell}: {outcome}")
        usable = {str(cell): score for cell in cells if (score := scores[str(cell)]) is not None}
        if not usable:
            raise NotFiniteError(f"Training diverged with every pair of rate and weight decay; {NOT_FINITE}.")
        return max((cell for cell in cells if str(cell) in usable), key=lambda cell: usable[str(cell)])

    def files(self, folder: Path, state: str, curves: str = "") -> TrainingFiles:
        """Where a training stores its state and curves."""
        return TrainingFiles(folder / state, folder / curves, self.settings.model_dump(mode="json"))

    def train_and_score(
        self, cell: Cell, source: Source, scored: Source, *, files: TrainingFiles, title: str = ""
    ) -> tuple[Classifier, Scored]:
        """Fine-tune a copy of the backbone on some images and score it on others."""
        settings, eval_target, batch_size = self.settings, self.eval_target, self.batch_size(source)
        steps_per_epoch = len(source) // batch_size
        total_steps = settings.steps or settings.epochs * steps_per_epoch
        plan = TrainingPlan(steps_per_epoch, total_steps, batch_size, title=title)
        learner = ClassifierLearner(
            eval_target.backbone,
            len(eval_target.classes),
            rate=cell.rate * batch_size / 256,
            weight_decay=cell.weight_decay,
            steps_per_epoch=steps_per_epoch,
            total_steps=total_steps,
            precision=settings.precision,
            device=eval_target.device,
            seed=settings.seed,
        )

        def batches(first_step: int) -> Iterator[LabelledViews]:
            return training_batches(
                CropDataset(source, eval_target.size, settings.seed),
                batch_size=batch_size,
                epochs=plan.epochs,
                start_step=first_step,
                workers=settings.workers,
                device=eval_target.device,
                on_unreadable=show_replaced(self.console),
            )

        fit(learner, batches, plan, files=files, console=self.console)
        return learner.classifier, self.score(learner.classifier, scored)

    def score(self, classifier: Classifier, source: Source) -> Scored:
        """Predictions for centre crops of images, and their accuracy."""
        [found] = self.eval_target.extract(classifier.backbone, [source], self.settings, self.console)
        features, labels = found.labelled
        with torch.no_grad():
            logits = classifier.head.to(features.device)(features)
        own = (ranked_hits(logits, labels), logits.argmax(dim=-1), labels)
        hits, predictions, labels = (distributed.gather_rows(column).cpu() for column in own)
        accuracy = Accuracy.per_class(hits, labels) if self.metric == "per_class" else Accuracy.of(hits)
        return Scored(accuracy, predictions, labels)
