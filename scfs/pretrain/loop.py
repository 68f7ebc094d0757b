from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console

from scfs.config import Config
from scfs.data.loader import StepSampler, ViewDataset, derive_seed, num_cores, num_workers, view_loader
from scfs.data.sources import Source, open_train
from scfs.data.views import MultiCrop, ViewBatch
from scfs.distributed import choose_device
from scfs.engine import runfolder
from scfs.engine.interrupt import Interrupt
from scfs.engine.optim import build_optimizer
from scfs.engine.progress import MetricsLog, ProgressDisplay
from scfs.errors import UserError
from scfs.method.scfs import SCFS
from scfs.pretrain.auto import resolve
from scfs.pretrain.build import build_method
from scfs.pretrain.health import Health
from scfs.pretrain.score import OnlineKnn
from scfs.pretrain.start import announce, find_checkpoint, restore, save
from scfs.pretrain.step import schedule, train_step


@dataclass(frozen=True)
class Job:
    """A run that is ready to go: resolved settings and everything they built."""

    config: Config
    folder: Path
    source: Source
    device: torch.device
    workers: int
    method: SCFS
    optimizer: torch.optim.Optimizer
    first_step: int

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
    job = prepare(config, name=name, resume=resume, console=console)
    score = OnlineKnn(job.config, job.source, workers=job.workers, device=job.device)
    run(job, score, console)
    return job.folder


def prepare(config: Config, *, name: str, resume: bool, console: Console) -> Job:
    """Build everything; what can be refused is refused before anything is written."""
    device = choose_device(config.run.device)
    workers = num_workers(config.data.workers, device)
    torch.set_num_threads(num_cores() if config.run.threads == "auto" else config.run.threads)
    source = open_train(config.data.source)
    if len(source) < config.optim.batch_size:
        raise UserError(
            f"optim.batch_size {config.optim.batch_size} is larger than the data ({len(source)} images); lower it."
        )
    config, choices = resolve(config, len(source))
    torch.manual_seed(config.seed)
    method = build_method(config).to(device).train()
    if config.run.channels_last:
        method.to(memory_format=torch.channels_last)
    optimizer = build_optimizer(config.optim.name, method.student)

    folder = runfolder.free_folder(name) if config.run.folder == "auto" else Path(config.run.folder)
    saved = find_checkpoint(folder, config) if resume else None
    first_step = restore(saved, method, optimizer) if saved else 0
    facts = runfolder.environment(device)
    runfolder.create(folder, resume=resume)
    runfolder.write_settings(folder, config.model_dump(mode="json"))
    runfolder.write_environment(folder, facts)
    job = Job(config, folder, source, device, workers, method, optimizer, first_step)
    size = {"run folder": folder, "images": len(source), "steps": job.total_steps, "done": first_step}
    announce(console, config, choices, {**size, **facts})
    return job


def make_batches(job: Job) -> Iterator[ViewBatch]:
    """The batches of every step that is still to do."""
    config, optim = job.config, job.config.optim
    dataset = ViewDataset(job.source, MultiCrop(**config.crops), config.seed)
    sampler = StepSampler(len(job.source), optim.batch_size, optim.epochs, seed=config.seed, start_step=job.first_step)
    return view_loader(dataset, sampler, workers=job.workers, pin=job.device.type == "cuda")


def run(job: Job, score: OnlineKnn, console: Console) -> None:
    """The loop: step, watch, log, score, save."""
    config, method, optim, every = job.config, job.method, job.config.optim, job.config.run
    log, health = MetricsLog(job.folder, job.first_step), Health(job.total_steps, method.uniform_loss)

    with Interrupt() as interrupt, ProgressDisplay(console, job.total_steps, job.first_step) as display:

        def log_score(step: int) -> None:
            if (accuracy := score(method.teacher.backbone)) is not None:
                at = {"step": step, "epoch": step / job.steps_per_epoch}
                log.write({**at, "knn_top1": accuracy.top1, "knn_top5": accuracy.top5})
                display.keep("k-NN", f"{accuracy.top1:.1%}")

        if score.sources is None:
            display.note(f"No online k-NN: {score.why_not}.")
        if job.first_step == 0:
            log_score(0)
        display.start_clock()
        for step, batch in enumerate(make_batches(job), start=job.first_step):
            now = schedule(config, step, job.steps_per_epoch)
            torch.manual_seed(derive_seed(config.seed, step))  # drop path
            numbers = train_step(
                method, batch.to(job.device), job.optimizer, now, clip=optim.clip, clip_norm=optim.clip_norm
            )
            done, epoch = step + 1, step // job.steps_per_epoch + 1
            last, epoch_ends = done == job.total_steps, done % job.steps_per_epoch == 0
            numbers["images_per_second"] = optim.batch_size / display.advance(done)
            display.show(f"epoch {epoch}/{optim.epochs}  step {done}/{job.total_steps}", numbers)
            for warning in health.check(done, numbers):
                display.note(f"Warning at step {done}: {warning}", style="bold yellow")
            if done % every.log_every_steps == 0 or last:
                log.write({"step": done, "epoch": done / job.steps_per_epoch, **numbers, **now.rates()})
            if last or (epoch_ends and every.knn_every_epochs and epoch % every.knn_every_epochs == 0):
                log_score(done)
            if last or interrupt.wished or done % int(every.checkpoint_every_steps) == 0:
                save(job.folder / runfolder.LAST, done, config, method, job.optimizer)
            if epoch_ends and every.keep_every_epochs and epoch % every.keep_every_epochs == 0:
                save(job.folder / f"epoch_{epoch:04d}.pt", done, config, method, job.optimizer)
            if interrupt.wished and not last:
                raise KeyboardInterrupt(f"Stopped after step {done}; go on with: scfs pretrain {job.folder} --resume")
            display.start_clock()
    log.close()
