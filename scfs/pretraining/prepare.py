import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from rich.console import Console

from scfs import distributed
from scfs.config import Config
from scfs.data.loader import PREFETCHED, LoadedViews, StepSampler, ViewDataset, num_workers, view_loader
from scfs.data.same_images import refuse_different_images
from scfs.data.sources import Source, open_train
from scfs.data.views import MultiCrop
from scfs.errors import UserError
from scfs.pretraining.auto import Choice, resolve
from scfs.pretraining.build import build_learner, build_method, hints, start_from
from scfs.pretraining.start import refuse_different_settings, with_absolute_paths
from scfs.pretraining.step import PretrainLearner
from scfs.pretraining.timing import seconds_per_step
from scfs.runs.metrics_log import check_loggers
from scfs.setting_types import MAX_EPOCHS

TIMED_STEPS = 10


@dataclass(frozen=True)
class PreparedRun:
    """A run that is ready to start: resolved settings and everything built from them."""

    config: Config
    choices: list[Choice]
    source: Source
    device: torch.device
    workers: int
    learner: PretrainLearner

    @property
    def steps_per_epoch(self) -> int:
        return len(self.source) // self.config.optim.batch_size

    @property
    def total_steps(self) -> int:
        return self.config.optim.num_epochs * self.steps_per_epoch

    @property
    def batches_ahead(self) -> int:
        """How many steps the workers load while the first one runs."""
        return math.ceil(PREFETCHED * self.workers / self.config.optim.accumulate)

    def batches(self, first_step: int) -> Iterator[list[LoadedViews]]:
        """The micro-batches of this process, for every remaining step."""
        config, optim = self.config, self.config.optim
        dataset = ViewDataset(self.source, MultiCrop(**config.crops), config.seed)
        sampler = StepSampler(
            len(self.source),
            optim.batch_size,
            optim.num_epochs,
            seed=config.seed,
            start_step=first_step,
            micro_batches=optim.accumulate,
            rank=distributed.rank(),
            world_size=distributed.world_size(),
        )
        return view_loader(dataset, sampler, workers=self.workers, pin=self.device.type == "cuda")


def prepare(config: Config, device: torch.device, console: Console, *, fresh: bool = True) -> PreparedRun:
    """Build everything, writing nothing. A run that is not `fresh` will get its weights from a checkpoint."""
    refuse_different_settings(config)
    per_process = distributed.per_process(config.optim.batch_size, "optim.batch_size")
    if per_process % config.optim.accumulate:
        raise UserError(
            f"optim.accumulate {config.optim.accumulate} does not divide the {per_process} images of a batch on each "
            f"process; choose a divisor of {per_process}."
        )
    check_loggers(config.run.loggers)
    workers = num_workers(config.data.workers, device)
    source = _open_images(config, fresh=fresh)
    refuse_different_images(source)
    if len(source) < 2:
        raise UserError(
            f"{config.data.source} has {len(source)} image; pre-training needs at least two, and learns from many."
        )
    if len(source) < config.optim.batch_size:
        raise UserError(
            f"optim.batch_size {config.optim.batch_size} is larger than the data ({len(source)} images); "
            + (f"lower it, for instance to {2 ** (len(source).bit_length() - 3)}." if len(source) >= 8 else "lower it.")
        )
    config = with_absolute_paths(config)
    epochs = _epochs_in(config.optim.seconds, config, source, device, workers) if config.optim.seconds else None
    config, choices = resolve(config, len(source), device, epochs=epochs)
    torch.manual_seed(config.seed)
    method = build_method(config)
    if config.backbone.init and fresh:
        console.print(start_from(method, config.backbone.init))
    for hint in hints(config, method, device) if fresh else ():
        console.print(hint, style="yellow")
    learner = build_learner(config, method, device, num_images=len(source))
    return PreparedRun(config, choices, source, device, workers, learner)


def _epochs_in(seconds: float, config: Config, source: Source, device: torch.device, workers: int) -> Choice:
    """How many epochs fit into a time, by the steps of a run that is discarded."""
    untimed, choices = resolve(config, len(source), device)
    learner = build_learner(untimed, build_method(untimed), device, num_images=len(source))
    trial = PreparedRun(untimed, choices, source, device, workers, learner)
    mine = seconds_per_step(learner, trial.batches(0), ahead=trial.batches_ahead, timed=TIMED_STEPS)
    per_step = distributed.on_rank_zero(lambda: mine)
    epoch = per_step * trial.steps_per_epoch
    epochs = min(MAX_EPOCHS, max(1, int(seconds / epoch)))
    fits = "as many as fit into" if epoch <= seconds else "more than fits into"
    time = str(config.optim.epochs)
    return Choice("optim.epochs", epochs, f"{fits} {time} at {per_step:.2f} s per step, without evaluations", time)


def _open_images(config: Config, *, fresh: bool) -> Source:
    try:
        return open_train(config.data.source, classes=config.data.classes, max_pixels=config.data.max_pixels)
    except UserError as error:
        if fresh:
            raise
        reason = str(error).partition(";")[0].rstrip(".")
        raise UserError(
            f"{reason}; if the images of the run have moved, add --data.source and where they are now."
        ) from None
