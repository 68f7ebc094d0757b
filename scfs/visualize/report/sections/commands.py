"""The commands to continue with, ready to be copied."""

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from scfs.runs.verdict import SHORT_STEPS
from scfs.visualize.report.markup import Html, Section, join, tag
from scfs.visualize.report.run import ReportedRun

AIM_STEPS = 2000  # that a longer run should have
EVALUATIONS = {
    "knn": "Score the features by nearest neighbours",
    "linear": "Train a linear classifier on features that are computed once",
    "finetune": "Fine-tune the whole network with labels",
}
FOLDER, PHOTO = "FOLDER", "PHOTO.jpg"


def command_section(runs: Sequence[ReportedRun], *, has_labels: bool) -> Section:
    """Commands for the state that the runs are in."""
    one = runs[0]
    steps = (
        _for_several(runs, has_labels=has_labels)
        if len(runs) > 1
        else _for_one(one, has_labels=has_labels)
        if one.config is not None
        else _for_task(one)
    )
    return Section("Next commands", join(join([tag("p", about), command(*words)]) for about, words in steps))


def command(*words: str) -> Html:
    """A command line, with a button that copies it."""
    return tag("pre", tag("code", shlex.join(words)), class_="command")


def _for_one(run: ReportedRun, *, has_labels: bool) -> Iterator[tuple[str, list[str]]]:
    folder, data = str(run.folder), [] if has_labels else ["--data", FOLDER]
    assert run.config is not None
    if run.verdict.headline == "Unfinished":
        yield "Continue the training where it stopped:", ["scfs", "pretrain", folder, "--resume"]
    if 0 < run.total_steps < SHORT_STEPS:
        epochs = -(-AIM_STEPS * run.config.optim.num_epochs // run.total_steps)
        about = f"Train longer, about {AIM_STEPS:,} steps, in a new run:"
        yield about, ["scfs", "pretrain", folder, "--optim.epochs", str(epochs)]
    photos = Path(run.data.source)
    if photos.is_absolute() and photos.is_dir():  # as runs record folders; others are no paths
        about = f"Find the photos most similar to one of them ({PHOTO}):"
        yield about, ["scfs", "embed", folder, str(photos), "--query", PHOTO, "--nearest", "10"]
    labels = "" if has_labels else f" ({FOLDER}: photos in a folder per class)"
    done = {result.evaluation for result in run.results}
    for name, about in EVALUATIONS.items():
        if name not in done:
            flags = ["--cached", "true"] if name == "linear" else []
            yield f"{about}{labels}:", ["scfs", name, folder, *data, *flags]
    yield "Write the weights for other programs:", ["scfs", "export", folder, str(run.folder / "backbone.safetensors")]


def _for_task(run: ReportedRun) -> Iterator[tuple[str, list[str]]]:
    folder, out = str(run.folder), "predictions.csv" if run.task == "finetune" else "predictions.json"
    yield "Apply it to other photos:", ["scfs", "predict", folder, FOLDER, out]
    if run.task == "finetune":
        yield (
            "Write the backbone for other programs:",
            [*("scfs", "export", folder, str(run.folder / "backbone.safetensors"))],
        )


def _for_several(runs: Sequence[ReportedRun], *, has_labels: bool) -> Iterator[tuple[str, list[str]]]:
    data = [] if has_labels else ["--data", FOLDER]
    for run in runs:
        if run.config is not None and not any(result.evaluation == "knn" for result in run.results):
            yield f"Score {run.name} by nearest neighbours:", ["scfs", "knn", str(run.folder), *data]
    yield "Compare all results in the terminal:", ["scfs", "compare", *(str(run.folder) for run in runs)]
