from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console

from scfs import distributed
from scfs.config import Config
from scfs.data.loader import LoadedViews, StepSampler, ViewDataset, derive_seed, num_cores, num_workers, view_loader
from scfs.data.sources import Source, open_train
from scfs.data.views import MultiCrop
from scfs.errors import UserError
from scfs.pretrain.auto import Choice, resolve
from scfs.pretrain.build import build_learner, build_method, start_from
from scfs.pretrain.health import Health, Unreadables
from scfs.pretrain.score import OnlineScore
from scfs.pretrain.start import announce, find_checkpoint, refuse_differing, save
from scfs.pretrain.step import Learner, schedule_at, train_step
from scfs.process import owns_process
from scfs.runs import layout
from scfs.runs.auto_choices import write_auto_choices
from scfs.runs.metrics_log import check_loggers, open_log
from scfs.training.cpu import keep_freed_memory
from scfs.training.interrupt import Interrupt
from scfs.training.progress import ProgressDisplay

SHOWN = ("entropy/view", "feature_spread", "images_per_second")  # beside losses; the rest is in the log


@dataclass(frozen=True)
class Job:
    """A run that is ready to go: resolved settings and everything they built."""

    config: Config
    choices: list[Choice]
    source: Source
    device: torch.device
    workers: int
    learner: Learner

    @property
    def steps_per_epoch(self) -> int:
        return len(self.source) // self.config.optim.batch_size

    @property
    def total_steps(self) -> int:
        return self.config.optim.epochs * self.steps_per_epoch


def pretrain(config: Config, *, name: str, resume: bool, console: Console) -> Path:
    """Train a student and its teacher on unlabelled images; returns the run folder.

    With `resume`, a run folder that has a checkpoint goes on from it, bit for bit as if never stopped; one that has
    none starts. `name` names the run folder where the settings do not.
    """
    if resume and config.run.folder == "auto":
        raise UserError("--resume needs to know the run: scfs pretrain RUN_FOLDER --resume, or give run.folder.")
    device = distributed.choose_device(config.run.device)
    with distributed.process_group(device):
        goes_on = resume and (Path(config.run.folder) / layout.LAST).exists()
        job = prepare(config, device, console, fresh=not goes_on)
        folder, first_step = open_run(job, name=name, resume=resume, console=console)
        score = OnlineScore(job.config, job.source, workers=job.workers, device=device)
        run(job, folder, first_step, score, console)
    return folder


def prepare(config: Config, device: torch.device, console: Console, *, fresh: bool = True) -> Job:
    """Build everything; nothing is written yet. A run that is not `fresh` will get its weights from a checkpoint."""
    refuse_differing(config)
    share = distributed.per_process(config.optim.batch_size, "optim.batch_size")
    if share % config.optim.accumulate:
        raise UserError(
            f"optim.accumulate {config.optim.accumulate} does not divide a process's share of a batch, {share} images; "
            "choose a divisor of it."
        )
    check_loggers(config.run.loggers)
    workers = num_workers(config.data.workers, device)
    if device.type == "cpu" and owns_process():
        keep_freed_memory()
    if config.run.threads != "auto" or owns_process():
        torch.set_num_threads(num_cores() if config.run.threads == "auto" else config.run.threads)
    source = open_train(config.data.source, classes=config.data.classes, max_pixels=config.data.max_pixels)
    if len(source) < config.optim.batch_size:
        raise UserError(
            f"optim.batch_size {config.optim.batch_size} is larger than the data ({len(source)} images); lower it."
        )
    config, choices = resolve(config, len(source), device)
    torch.manual_seed(config.seed)
    method = build_method(config)
    if config.backbone.init and fresh:
        console.print(start_from(method, config.backbone.init), soft_wrap=True, highlight=False, markup=False)
    learner = build_learner(config, method, device)
    return Job(config, choices, source, device, workers, learner)


def open_run(job: Job, *, name: str, resume: bool, console: Console) -> tuple[Path, int]:
    """The run folder, made or gone on with, and the number of steps already done."""
    config = job.config
    folder = Path(
        distributed.on_rank_zero(lambda: str(layout.free_path(name)))
        if config.run.folder == "auto"
        else config.run.folder
    )
    saved = find_checkpoint(folder, config, len(job.source)) if resume else None
    if saved:
        job.learner.load_state_dict(saved)
    first_step = int(saved["step"]) if saved else 0
    if len({*distributed.gather(first_step)}) > 1:
        raise UserError(f"Processes see different checkpoints in {folder}; put the run folder on a disk they share.")
    facts = layout.environment(job.device)

    def write() -> None:
        layout.create(folder, resume=resume)
        layout.write_settings(folder, config.model_dump(mode="json"))
        write_auto_choices(folder, job.choices)
        layout.write_environment(folder, facts)

    distributed.on_rank_zero(write)
    size = {"run folder": folder, "images": len(job.source), "steps": job.total_steps, "done": first_step}
    announce(console, config, job.choices, {**size, **facts})
    return folder, first_step


def make_batches(job: Job, first_step: int) -> Iterator[list[LoadedViews]]:
    """The parts of this process's batches, for every step that is still to do."""
    config, optim = job.config, job.config.optim
    dataset = ViewDataset(job.source, MultiCrop(**config.crops), config.seed)
    sampler = StepSampler(
        len(job.source),
        optim.batch_size,
        optim.epochs,
        seed=config.seed,
        start_step=first_step,
        parts=optim.accumulate,
        rank=distributed.rank(),
        world_size=distributed.world_size(),
    )
    return view_loader(dataset, sampler, workers=job.workers, pin=job.device.type == "cuda")


def run(job: Job, folder: Path, first_step: int, score: OnlineScore, console: Console) -> None:
    """The loop: step, watch, log, score, save."""
    config, learner, optim, every = job.config, job.learner, job.config.optim, job.config.run
    log = open_log(folder, first_step, every.loggers, config.model_dump(mode="json"))
    health = Health(job.total_steps, learner.method.num_outputs)
    unreadables = Unreadables(folder, len(job.source), config.data.max_unreadable)

    with Interrupt() as interrupt, ProgressDisplay(console, job.total_steps, first_step) as display:

        def log_score(step: int) -> None:
            could, scores = score.wanted, score(learner.method.teacher.backbone)
            if could and not scores:
                display.note(f"Online scores stopped: {score.why_not}", style="yellow")
            if scores:
                log.write({"step": step, "epoch": step / job.steps_per_epoch, **scores})
                display.keep("RankMe", f"{scores['rankme']:.1f}")
            if "knn_top1" in scores:
                display.keep("k-NN", f"{scores['knn_top1']:.1%}")

        if score.sources is None:
            display.note(f"No online k-NN: {score.why_not}.")
        if first_step == 0:
            log_score(0)
        display.start_clock()
        for step, parts in enumerate(make_batches(job, first_step), start=first_step):
            schedule = schedule_at(config, step, job.steps_per_epoch)
            torch.manual_seed(derive_seed(config.seed, step, distributed.rank()))  # drop path
            numbers = train_step(
                learner, [p.views for p in parts], schedule, clip=optim.clip, clip_norm=optim.clip_norm
            )
            done, epoch = step + 1, step // job.steps_per_epoch + 1
            last, epoch_ends = done == job.total_steps, done % job.steps_per_epoch == 0
            numbers["images_per_second"] = optim.batch_size / display.advance(done)
            shown = {name: value for name, value in numbers.items() if name in SHOWN or name.startswith("loss")}
            display.show(f"epoch {epoch}/{optim.epochs}  step {done}/{job.total_steps}", shown)
            unread = [name for part in parts for name in part.unreadable]
            stop, lost = distributed.sum_counts(interrupt.wished, len(unread))
            for line in unreadables.check(epoch, unread, lost):
                display.note(line, style="yellow")
            for warning in health.check(done, numbers):
                display.note(f"Warning at step {done}: {warning}", style="bold yellow")
            if done % every.log_every_steps == 0 or last:
                log.write({"step": done, "epoch": done / job.steps_per_epoch, **numbers, **schedule.rates()})
            if last or (epoch_ends and every.knn_every_epochs and epoch % every.knn_every_epochs == 0):
                log_score(done)
            if last or stop or done % int(every.checkpoint_every_steps) == 0:
                save(folder / layout.LAST, done, config, len(job.source), learner)
            if epoch_ends and every.keep_every_epochs and epoch % every.keep_every_epochs == 0:
                save(folder / f"epoch_{epoch:04d}.pt", done, config, len(job.source), learner)
            if stop and not last:
                raise KeyboardInterrupt(f"Stopped after step {done}; go on with: scfs pretrain {folder} --resume")
            display.start_clock()
    log.close()
