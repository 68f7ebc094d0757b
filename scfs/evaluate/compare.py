import re
import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from scfs.data.locations import absolute_source
from scfs.errors import UserError
from scfs.evaluate.plots import error_bars
from scfs.markdown import markdown_table
from scfs.runs import layout
from scfs.runs.files import write_figure, write_text
from scfs.runs.metric import Metric, best_of
from scfs.runs.results import read_results

TIE, UNKNOWN = "~", "?"
NOTES = {
    TIE: "within the 95 % interval of the best in its row, or the best within its own.",
    UNKNOWN: "without an interval, so that a difference may be chance.",
}


class Measure(NamedTuple):
    """What must be the same for metrics to be compared: a row of the table."""

    evaluation: str
    data: str  # with an absolute path: photos, photos/ and /home/me/photos are the same
    protocol: str
    metric: str

    @property
    def order(self) -> list[tuple[str, int]]:
        """Sort key that compares numbers as numbers: k=20 comes before k=100."""
        return [(text, int(digits or 0)) for text, digits in re.findall(r"(\D*)(\d*)", "\0".join(self))]


Scores = dict[Measure, Metric]


def compare(runs: Sequence[str], console: Console) -> Path:
    """Compare the scores of runs, and print and write the table: the `scfs compare` command.

    Of several, those that are no run folder or have no results are skipped, since a pattern such as runs/* matches
    them too. Returns the Markdown file; the plot is next to it.
    """
    scores = {run: latest(Path(run)) for run in _comparable(runs, console)}
    measures = sorted({measure for row in scores.values() for measure in row}, key=lambda measure: measure.order)
    best = {measure: best_of(row[measure] for row in scores.values() if measure in row) for measure in measures}
    head, names = ["evaluation", *_run_names(list(scores))], _measure_names(measures)
    lines = [
        [f"{name} {best[m].unit}".strip(), *(_cell(row[m], best[m]) if m in row else "" for row in scores.values())]
        for name, m in zip(names, measures, strict=True)
    ]
    table = Table(*head)
    for line in lines:
        table.add_row(*line)
    console.print(table)
    cells = "".join(cell for line in lines for cell in line[1:])
    notes = [f"{mark}: {meaning}" for mark, meaning in NOTES.items() if mark in cells]
    for note in notes:
        console.print(note)
    page = layout.free_path("compare", ".md")
    page.parent.mkdir(parents=True, exist_ok=True)
    plot = page.with_suffix(".png")
    parts = ["# Runs compared", markdown_table(head, lines), *notes, f"![Metrics by evaluation]({plot.name})"]
    write_text(page, "\n\n".join(parts) + "\n")
    _save_plot(plot, dict(zip(head[1:], scores.values(), strict=True)), dict(zip(measures, names, strict=True)))
    console.print(f"table  {page}\nplot   {plot}")
    return page


def _comparable(runs: Sequence[str], console: Console) -> list[str]:
    """The runs with results; one line names the others. If none has any, `latest` is to refuse the first."""
    foreign = [run for run in runs if not _is_run(Path(run))]
    unscored = [run for run in runs if run not in foreign and not read_results(Path(run))]
    if not (chosen := [run for run in runs if run not in (*foreign, *unscored)]):
        return [*unscored, *foreign][:1]
    for reason, skipped in (("not a run folder", foreign), ("no results yet", unscored)):
        if skipped:
            line = f"Skipped, {reason}: {', '.join(skipped)}"
            console.print(line, style="yellow")
    return chosen


def _is_run(run: Path) -> bool:
    """Whether something is a run folder; a path to nothing is a mistake, which no pattern of the shell makes."""
    if not run.exists():
        raise UserError(f"There is nothing at {run}; give folders that scfs pretrain made.")
    return (run / layout.SETTINGS).exists()


def latest(run: Path) -> Scores:
    """The latest metric of each measure of a run."""
    if not _is_run(run):
        raise UserError(f"{run} is not a run folder; give folders that scfs pretrain made.")
    if not (results := read_results(run)):
        raise UserError(
            f"{run} has no results yet; score it first, for example: scfs knn {shlex.quote(str(run))} --data FOLDER."
        )
    return {
        Measure(result.evaluation, absolute_source(result.data), result.protocol, metric.name): metric
        for result in results
        for metric in result.metrics
    }


def _run_names(runs: list[str]) -> list[str]:
    """Names of runs: their last folders if those differ, otherwise the whole paths."""
    short = [Path(run).resolve().name for run in runs]
    return short if len({*short}) == len(short) else runs


def _measure_names(measures: Sequence[Measure]) -> list[str]:
    """Names of measures; data is named by its kind and last folder if that is unique."""
    short = {source: _short(source) for source in {measure.data for measure in measures}}
    counts = Counter(short.values())
    here = f"{Path.cwd()}/"
    names = {source: name if counts[name] == 1 else source.removeprefix(here) for source, name in short.items()}
    return [f"{m.metric} ({', '.join(filter(None, (m.evaluation, names[m.data], m.protocol)))})" for m in measures]


def _short(source: str) -> str:
    kind, colon, folder = source.partition(":")
    if not colon or "/" in kind:
        return Path(source).name
    return f"{kind}:{Path(folder).name}"


def _cell(metric: Metric, best: Metric) -> str:
    mark = TIE if metric.ties_with(best) else UNKNOWN if metric.interval is None else ""
    return f"{metric.shown()} {mark}".strip()


def _save_plot(path: Path, scores: dict[str, Scores], names: dict[Measure, str]) -> None:
    """A panel per unit; in it groups of bars, ordered as in the table: a group per measure, a bar per run."""
    units: dict[str, list[Measure]] = {}
    for measure in names:
        unit = next(row[measure].unit for row in scores.values() if measure in row)
        units.setdefault(unit, []).append(measure)
    heights = [1 + 0.2 * len(measures) * (1 + len(scores)) for measures in units.values()]
    figure = Figure(figsize=(9, sum(heights)), layout="constrained")
    panels = figure.subplots(len(units), 1, squeeze=False, height_ratios=heights)[:, 0]
    width = 0.8 / len(scores)
    for axes, (unit, measures) in zip(panels, units.items(), strict=True):
        for i, (run, row) in enumerate(scores.items()):
            present = [j for j, measure in enumerate(measures) if measure in row]
            shown = [row[measures[j]] for j in present]
            positions = [j + width * (i - (len(scores) - 1) / 2) for j in present]
            values = [metric.scale * metric.value for metric in shown]
            axes.barh(positions, values, width, xerr=error_bars(shown), capsize=2, label=run)
        axes.set_yticks(range(len(measures)), [names[measure] for measure in measures])
        axes.invert_yaxis()
        axes.set_xlabel(unit)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper right", ncols=3)
    write_figure(path, figure, dpi=120)
