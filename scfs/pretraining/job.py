import shlex
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack
from datetime import timedelta
from pathlib import Path

from rich.console import Console

from scfs import distributed
from scfs.config import Config
from scfs.data.loader import LoadedViews
from scfs.data.locations import image_record
from scfs.data.paths import shown
from scfs.data.skipped import show_skipped, skipped_by_suffix, unused_folders
from scfs.data.unreadable import UnreadableImages
from scfs.errors import UserError
from scfs.pretraining.closing import print_next_commands, print_score
from scfs.pretraining.health import Health
from scfs.pretraining.ineffective import refuse_ineffective
from scfs.pretraining.opening import environment_line, print_line, print_opening
from scfs.pretraining.photo_size import large_photos
from scfs.pretraining.prepare import PreparedRun, prepare
from scfs.pretraining.score import RANK, OnlineScore
from scfs.pretraining.start import find_checkpoint, moved_from, save, with_epochs_of
from scfs.recipe import Change
from scfs.runs import checkpoint, layout
from scfs.runs.auto_choices import write_auto_choices
from scfs.runs.files import held
from scfs.runs.metric import Metric
from scfs.runs.metrics_log import logged_metrics, open_log
from scfs.training.cpu import cpu_setup
from scfs.training.loop import Hooks, Numbers, TrainingPlan, train
from scfs.training.progress import ProgressDisplay

SHOWN = ("entropy/view", "feature_spread", "images_per_second")  # besides the losses; the rest is only in the log
Watch = Callable[[int, list[LoadedViews], Numbers, ProgressDisplay], None]


def pretrain(
    config: Config,
    *,
    name: str,
    resume: bool,
    console: Console,
    changes: Sequence[Change] = (),
    next_commands: bool = True,
) -> Path:
    """Train a student and its teacher on unlabelled images; returns the run folder.

    With `resume`, continue from the checkpoint in the run folder, bit for bit as if never stopped, or start if there is
    none. `name` names the run folder if the settings do not; `changes` are what differs from the recipe of that name.
    `next_commands`: print commands to continue with.
    """
    if resume and config.run.folder == "auto":
        raise UserError("--resume needs a run folder: scfs pretrain RUN_FOLDER --resume, or set run.folder.")
    refuse_ineffective(config, changes)
    start, device = time.perf_counter(), distributed.choose_device(config.run.device)
    with distributed.process_group(device), cpu_setup(device, config.run.threads), ExitStack() as stack:
        has_checkpoint = resume and checkpoint.exists(Path(config.run.folder) / layout.LAST)
        if has_checkpoint:
            config = with_epochs_of(config, Path(config.run.folder))
        run = prepare(config, device, console, fresh=not has_checkpoint)
        folder, first_step = open_run(
            run, name=name, resume=resume, console=console, changes=changes, hold=stack.enter_context
        )
        if _is_finished(run, folder, first_step):
            note = f"{folder} is finished ({first_step} of {run.total_steps} steps); there is nothing to resume."
            console.print(note)
            return folder
        announce(run, folder, first_step, name=name, changes=changes, console=console)
        score = OnlineScore(run.config, run.source, workers=run.workers, device=device)
        train_run(run, folder, first_step, score, console)
        print_score(folder, console)
        if next_commands:
            duration = timedelta(seconds=round(time.perf_counter() - start))
            steps = f"{duration} for {run.total_steps - first_step} steps"
            print_next_commands(folder, steps, console, has_labels=bool(run.source.classes))
    return folder


def open_run(
    run: PreparedRun,
    *,
    name: str,
    resume: bool,
    console: Console,
    hold: Callable[[AbstractContextManager[None]], None],
    changes: Sequence[Change] = (),
) -> tuple[Path, int]:
    """Create or reopen the run folder; returns it and the number of steps already done.

    The folder of a finished run is left as it is; any other is held for writing, by `hold`, which gets its lock.
    """
    config = run.config

    def warn(sentence: str) -> None:
        print_line(sentence, console, style="yellow")

    folder = Path(
        distributed.on_rank_zero(lambda: str(layout.free_path(name)))
        if config.run.folder == "auto"
        else config.run.folder
    )
    saved = find_checkpoint(folder, config, run.source, warn) if resume else None
    if saved:
        run.learner.load_state_dict(saved)
        if before := moved_from(saved, config).get("data.source"):
            print_line(f"The {len(run.source)} images are read from {config.data.source}, no longer {before}.", console)
    first_step = int(saved["step"]) if saved else 0
    if len({*distributed.gather(first_step)}) > 1:
        raise UserError(f"Processes see different checkpoints in {folder}; put the run folder on a shared disk.")
    if resume and saved is None:
        distributed.on_rank_zero(lambda: layout.check_history(folder, int(config.run.checkpoint_every_steps)))
    if _is_finished(run, folder, first_step):
        return folder, first_step

    def write() -> None:
        with layout.created(folder, resume=resume):
            hold(held(folder))
            layout.write_settings(folder, config.model_dump(mode="json"))
            if saved is None:  # a resumed run keeps what was chosen at its start
                write_auto_choices(folder, run.choices)
            recipe = {"recipe": name, "changes": [change._asdict() for change in changes]}
            layout.write_environment(folder, layout.environment(run.device) | recipe)

    distributed.on_rank_zero(write)
    return folder, first_step


def _is_finished(run: PreparedRun, folder: Path, first_step: int) -> bool:
    return first_step >= run.total_steps and _is_evaluated(folder, first_step)


def _is_evaluated(folder: Path, step: int) -> bool:
    """Whether an evaluation after a saved step, if one was due, is in the log: the state is saved before it.

    A run without any evaluation cannot be scored, or is not to be.
    """
    logged = distributed.on_rank_zero(lambda: logged_metrics(layout.read_metrics(folder))) if step else {}
    steps = {logged_step for points in logged.values() for logged_step, _ in points}
    return step > 0 and (step in steps or not steps)


def announce(
    run: PreparedRun, folder: Path, first_step: int, *, name: str, changes: Sequence[Change], console: Console
) -> None:
    """Print what is going to run; a resumed run continues with its own settings, so no recipe is compared with them."""
    steps = f"{run.total_steps} steps ({run.steps_per_epoch} per epoch)"
    steps = f"continues from step {first_step} of {run.total_steps}" if first_step else steps
    facts = {
        "environment": environment_line(layout.environment(run.device)),
        "all settings": folder / layout.SETTINGS,
    }
    title = f"{name}: run folder {folder}, {len(run.source)} images, {steps}, {run.device}"
    listed = [] if first_step else [change for change in changes if change.setting != "run.folder"]
    print_opening(title, run.config, console, changes=listed, choices=run.choices, facts=facts)
    if not first_step and distributed.is_rank_zero():
        show_skipped(skipped_by_suffix(run.config.data.source), console)
        if unused := unused_folders(run.config.data.source):
            print_line(f"Folders beside train that are not used: {', '.join(map(shown, unused))}.", console)
        if advice := large_photos(run.config, run.source):
            print_line(advice, console, style="yellow")


def train_run(run: PreparedRun, folder: Path, first_step: int, score: OnlineScore, console: Console) -> None:
    """Train the remaining steps of a run in the shared training loop."""
    config, every = run.config, run.config.run
    plan = TrainingPlan(
        steps_per_epoch=run.steps_per_epoch,
        total_steps=run.total_steps,
        batch_size=config.optim.batch_size,
        first_step=first_step,
        evaluated=_is_evaluated(folder, first_step),
        log_every_steps=every.log_every_steps,
        shown=lambda name: name in SHOWN or name.startswith("loss"),
        how_to_resume=f"resume with: scfs pretrain {shlex.quote(str(folder))} --resume",
    )

    images = image_record(run.source)

    def save_to(file: str, step: int) -> None:
        save(folder / file, step, config, images, run.learner)

    def keep(step: int) -> None:
        if _epoch_due(step, plan, int(every.keep_every_epochs)):
            save_to(f"epoch_{step // plan.steps_per_epoch:04d}.pt", step)

    health = Health(run.total_steps, run.config.method.num_outputs, first_rank=_first_rank(folder, first_step))
    hooks = Hooks[list[LoadedViews]](
        watch=_watch(run, folder, health),
        evaluation_due=lambda step: (
            score.enabled and (step in (0, plan.total_steps) or _epoch_due(step, plan, int(every.knn_every_epochs)))
        ),
        evaluate=lambda step, display: _scores(score, run, step, health, display),
        save_due=lambda step: step % int(every.checkpoint_every_steps) == 0,
        save=lambda step: save_to(layout.LAST, step),
        keep=keep,
    )
    if score.sources is None:
        console.print(f"No online k-NN: {score.skip_reason}.")
    with open_log(folder, first_step, every.loggers, config.model_dump(mode="json")) as log:
        train(run.learner, run.batches(first_step), plan, hooks, log=log, console=console)


def _first_rank(folder: Path, first_step: int) -> float | None:
    """The effective rank that a resumed run had before training; None for a new run, and if it was not logged."""
    ranks = logged_metrics(layout.read_metrics(folder)).get(RANK) if first_step else None
    return ranks[0][1].value if ranks else None


def _epoch_due(step: int, plan: TrainingPlan, every_epochs: int) -> bool:
    """Whether a step ends an epoch after which something is due; 0: never."""
    return bool(every_epochs) and step > 0 and step % (every_epochs * plan.steps_per_epoch) == 0


def _watch(run: PreparedRun, folder: Path, health: Health) -> Watch:
    """Warn about unreadable images and signs of collapse."""
    max_fraction, listed = run.config.data.max_unreadable, folder / layout.UNREADABLE
    unreadables = UnreadableImages(len(run.source), max_fraction=max_fraction, path=listed)

    def watch(done: int, batch: list[LoadedViews], numbers: Numbers, display: ProgressDisplay) -> None:
        unreadable = [name for micro_batch in batch for name in micro_batch.unreadable]
        if any(distributed.sum_counts(len(unreadable))):
            everywhere = [name for names in distributed.gather(unreadable) for name in names]
            for line in unreadables.check((done - 1) // run.steps_per_epoch + 1, everywhere):
                display.note(line, style="yellow")
        _warn(run, done, health.check(done, numbers), display)

    return watch


def _warn(run: PreparedRun, done: int, warnings: Iterable[str], display: ProgressDisplay) -> None:
    """Show signs of collapse, or stop at the first one."""
    for warning in warnings:
        if run.config.run.on_collapse == "stop":
            raise UserError(f"Stopped at step {done} (run.on_collapse): {warning}")
        display.note(f"Warning at step {done}: {warning}", style="bold yellow")


def _scores(
    score: OnlineScore, run: PreparedRun, done: int, health: Health, display: ProgressDisplay
) -> Sequence[Metric]:
    """Online metrics of the teacher, which stay displayed; empty if they cannot be computed."""
    was_enabled, metrics = score.enabled, score(run.learner.method.teacher.backbone)
    if was_enabled and not metrics:
        display.note(f"Online scores stopped: {score.skip_reason}", style="yellow")
    for metric in metrics:
        display.pin(metric.name, f"{metric.shown()}{metric.unit}")
        if metric.name == RANK:
            _warn(run, done, health.check_rank(done, metric.value), display)
    return metrics
