"""What a run folder says about a training, without its network and its images."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scfs.config import Config, DataSettings
from scfs.errors import UserError
from scfs.evaluate.own_data import own_data
from scfs.recipe import check, read_toml
from scfs.runs.auto_choices import AutoChoice, read_auto_choices
from scfs.runs.layout import LAST, SETTINGS, UNREADABLE, read_environment, read_metrics
from scfs.runs.results import Result, read_results
from scfs.runs.verdict import Verdict, judge, judge_task, total_steps

PRETRAIN = "pretrain"
TASKS = ("finetune", "detect")  # that train a network with labels, in a folder of its own


@dataclass(frozen=True)
class ReportedRun:
    """A run folder as a report shows it."""

    folder: Path
    name: str
    task: str  # the command that trained its network
    config: Config | None  # of pre-training
    settings: Mapping[str, Any]
    rows: Sequence[dict[str, Any]]  # of its log
    results: Sequence[Result]
    verdict: Verdict
    starts: Sequence[dict[str, Any]]  # a record of the environment per start
    choices: Sequence[AutoChoice]
    unreadable: Sequence[str]  # images that could not be read in training

    @property
    def data(self) -> DataSettings:
        """The images that it was trained on."""
        return own_data(str(self.folder))

    @property
    def total_steps(self) -> int:
        """Of the whole training, if pre-training has logged any."""
        steps = [row for row in self.rows if "loss" in row]
        return total_steps(steps, self.config.optim.num_epochs) if steps and self.config else 0

    @property
    def seconds(self) -> float:
        """About how long the logged steps took, from their speed; without evaluations and pauses."""
        if self.config is None:
            return 0.0
        seconds, before = 0.0, 0
        for row in self.rows:
            if row.get("images_per_second"):
                seconds += (row["step"] - before) * self.config.optim.batch_size / row["images_per_second"]
                before = row["step"]
        return seconds


def read_run(folder: Path, name: str) -> ReportedRun:
    """Read a run folder, or that of a network that was trained with labels."""
    if not (folder / SETTINGS).is_file():
        raise UserError(f"{folder} is not a run folder (it has no {SETTINGS}).")
    settings, rows = read_toml(folder / SETTINGS), read_metrics(folder)
    task = next((task for task in TASKS if task in settings), PRETRAIN)
    config = check(Config, settings) if task == PRETRAIN else None
    results = read_results(folder) if config else _task_results(folder, task, settings[task])
    if config is not None:
        verdict = judge(rows, epochs=config.optim.num_epochs, num_outputs=config.method.num_outputs)
    else:
        metrics = results[-1].metrics if results else ()
        verdict = judge_task(rows, task, metrics, is_finished=(folder / LAST).exists())
    listed = folder / UNREADABLE
    return ReportedRun(
        folder,
        name,
        task,
        config,
        settings,
        rows,
        results,
        verdict,
        read_environment(folder),
        read_auto_choices(folder),
        listed.read_text(encoding="utf-8").splitlines() if listed.is_file() else [],
    )


def run_names(folders: Sequence[Path]) -> list[str]:
    """The last folder of each path if those differ, otherwise the whole paths; inside another run, RUN/FOLDER."""
    short = [
        f"{path.parent.name}/{path.name}" if (path.parent / SETTINGS).is_file() else path.name
        for path in (folder.resolve() for folder in folders)
    ]
    return short if len({*short}) == len(short) else [str(folder) for folder in folders]


def _task_results(folder: Path, task: str, settings: Mapping[str, Any]) -> list[Result]:
    """The result of the training itself, which is recorded in the run that it started from, and later ones."""
    started_from = folder.resolve().parent
    if not (started_from / SETTINGS).is_file():
        return read_results(folder)
    same = [
        result
        for result in read_results(started_from)
        if result.evaluation == task and _plain(result.settings) == _plain(settings)
    ]
    return [*same[-1:], *read_results(folder)]


def _plain(settings: Mapping[str, Any]) -> Any:
    """Settings as JSON has them, to compare those of TOML with those of results."""
    return json.loads(json.dumps(settings))
