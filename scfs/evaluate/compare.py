from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from scfs.errors import UserError
from scfs.evaluate.knn.settings import Knn
from scfs.evaluate.linear.settings import Linear
from scfs.markdown import markdown_table
from scfs.runs import layout
from scfs.runs.results import read_results

LIKE_THE_BEST = "~"
USUAL = {"temperature": Knn().temperature, "blocks": Linear().blocks}


class Measure(NamedTuple):
    """What must be the same for figures to be compared."""

    evaluation: str
    data: str  # as it was given
    protocol: str
    figure: str


class Score(NamedTuple):
    """A figure of a run, and where it would lie in 95 % of test sets."""

    top1: float
    low: float
    high: float

    def is_like(self, best: "Score") -> bool:
        """Whether the difference to the best is smaller than either's interval."""
        return self != best and (best.low <= self.top1 or self.high >= best.top1)


def compare(runs: Sequence[str], console: Console) -> Path:
    """Lay runs side by side by what they scored, print it and write it down: the `scfs compare` command.

    Returns the Markdown file; the plot is beside it.
    """
    scores = {run: latest(Path(run)) for run in runs}
    measures = sorted({measure for row in scores.values() for measure in row})
    best = {
        measure: max((row[measure] for row in scores.values() if measure in row), key=lambda s: s.top1)
        for measure in measures
    }
    head, names = ["evaluation", *_run_names(list(scores))], _measure_names(measures)
    lines = [
        [name, *(_shown(row[measure], best[measure]) if measure in row else "" for row in scores.values())]
        for name, measure in zip(names, measures, strict=True)
    ]
    table = Table(*head)
    for line in lines:
        table.add_row(*line)
    console.print(table)
    note = f"Top-1 in per cent. {LIKE_THE_BEST}: not told apart from the best of its row at 95 %."
    console.print(note, highlight=False)
    page = layout.free_path("compare", ".md")
    page.parent.mkdir(parents=True, exist_ok=True)
    plot = page.with_suffix(".png")
    text = f"# Runs compared\n\n{markdown_table(head, lines)}\n\n{note}\n\n![Top-1 by evaluation]({plot.name})\n"
    page.write_text(text, encoding="utf-8")
    _save_plot(plot, dict(zip(head[1:], scores.values(), strict=True)), measures, names)
    console.print(f"table  {page}\nplot   {plot}", highlight=False, soft_wrap=True)
    return page


def latest(run: Path) -> dict[Measure, Score]:
    """The last figure of each measure that a run has."""
    if not (run / layout.SETTINGS).exists():
        raise UserError(f"{run} is not a run folder; give folders that scfs pretrain made.")
    if not (entries := read_results(run)):
        raise UserError(f"{run} has no results yet; score it first, such as with: scfs knn {run} --data FOLDER.")
    return {
        Measure(entry["evaluation"], entry["settings"]["data"], _protocol(entry["settings"]), name): Score(
            figure["top1"], *figure["interval"]
        )
        for entry in entries
        for name, figure in entry["figures"].items()
    }


def _protocol(settings: dict[str, Any]) -> str:
    """The checkpoint if it is not the last one, the size, the length of training, the network, and what is unusual."""
    parts = []
    if settings.get("classes"):
        parts.append(Path(settings["classes"]).stem)
    checkpoint = Path(settings.get("target", ""))
    if checkpoint.suffix == ".pt" and checkpoint.name != layout.LAST:
        parts.append(checkpoint.stem)
    if "size" in settings:
        parts.append(f"{settings['size']} px")
    if settings.get("steps"):
        parts.append(f"{settings['steps']} steps")
    elif "epochs" in settings:
        parts.append(f"{settings['epochs']} epochs")
    if settings.get("network") == "student":
        parts.append("student")
    parts += [f"{name} {settings[name]:g}" for name, usual in USUAL.items() if settings.get(name, usual) != usual]
    return ", ".join(parts)


def _run_names(runs: list[str]) -> list[str]:
    """Runs are named by their last folder, where that tells them apart."""
    short = [Path(run).resolve().name for run in runs]
    return short if len({*short}) == len(short) else runs


def _measure_names(measures: Sequence[Measure]) -> list[str]:
    """Data is named by its kind and last folder, where that tells it from the others."""
    short = {source: _short(source) for source in {measure.data for measure in measures}}
    times = Counter(short.values())
    names = {source: name if times[name] == 1 else source for source, name in short.items()}
    return [f"{c.figure} ({', '.join(filter(None, (c.evaluation, names[c.data], c.protocol)))})" for c in measures]


def _short(source: str) -> str:
    kind, colon, folder = source.partition(":")
    if not colon or "/" in kind:
        return Path(source).name
    return f"{kind}:{Path(folder).name}"


def _shown(score: Score, best: Score) -> str:
    return f"{100 * score.top1:.1f}{' ' + LIKE_THE_BEST if score.is_like(best) else ''}"


def _save_plot(
    path: Path, scores: dict[str, dict[Measure, Score]], measures: Sequence[Measure], names: Sequence[str]
) -> None:
    """Groups of bars, from above as in the table: a group per evaluation, a bar per run."""
    figure = Figure(figsize=(9, 1 + 0.2 * len(measures) * (1 + len(scores))), layout="constrained")
    axes, width = figure.subplots(), 0.8 / len(scores)
    for i, (run, row) in enumerate(scores.items()):
        there = [j for j, measure in enumerate(measures) if measure in row]
        shown = [row[measures[j]] for j in there]
        errors = [[100 * (c.top1 - c.low) for c in shown], [100 * (c.high - c.top1) for c in shown]]
        places = [j + width * (i - (len(scores) - 1) / 2) for j in there]
        axes.barh(places, [100 * c.top1 for c in shown], width, xerr=errors, capsize=2, label=run)
    axes.set_yticks(range(len(measures)), names)
    axes.invert_yaxis()
    axes.set_xlabel("top-1 %")
    figure.legend(loc="outside upper right", ncols=3)
    figure.savefig(path, dpi=120)
