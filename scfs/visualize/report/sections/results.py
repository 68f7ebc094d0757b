"""Every result of every run, with intervals."""

from collections.abc import Sequence
from typing import NamedTuple

from scfs.evaluate.compare import Measure
from scfs.runs.metric import Metric, best_of
from scfs.runs.results import Result
from scfs.visualize.report.markup import Html, Section, columns, join, tag
from scfs.visualize.report.run import ReportedRun


class Group(NamedTuple):
    """What must be equal for a fair comparison."""

    evaluation: str
    data: str
    protocol: str


Cells = dict[str, list[Metric | None]]  # by metric, a value per column


def result_section(runs: Sequence[ReportedRun]) -> Section | None:
    """A row per metric. Of one run, a column per time that it was computed; of several, the latest of each."""
    groups = [_table(group, members, [run.name for run in runs]) for group, members in grouped(runs).items()]
    if not groups:
        return None
    bold = " Bold: the best of its row, and others within its interval." if len(runs) > 1 else ""
    return Section(
        "Results",
        columns(groups, class_=f"columns groups{' roomy' if len(runs) > 1 else ''}"),
        f"From results.json, with 95 % intervals over the scored images.{bold}",
    )


def grouped(runs: Sequence[ReportedRun]) -> dict[Group, list[list[Result]]]:
    """The results of each run that have metrics, oldest first, by what makes them comparable."""
    found = dict.fromkeys(_group(result) for run in runs for result in run.results if result.metrics)
    evaluations = [*dict.fromkeys(key.evaluation for key in found)]
    keys = sorted(found, key=lambda key: evaluations.index(key.evaluation))
    return {key: [[result for result in run.results if _group(result) == key] for run in runs] for key in keys}


def cells_of(members: Sequence[Sequence[Result]], *, is_one: bool) -> Cells:
    """The metrics of a group, one value per column: the results of one run, or the latest of each of several."""
    columns = [*members[0]] if is_one else [each[-1] if each else None for each in members]
    names = dict.fromkeys(metric.name for result in columns if result for metric in result.metrics)
    return {
        name: [next((m for m in result.metrics if m.name == name), None) if result else None for result in columns]
        for name in sorted(names, key=lambda name: Measure("", "", "", name).order)
    }


def _group(result: Result) -> Group:
    return Group(result.evaluation, result.data, result.protocol)


def _table(group: Group, members: Sequence[Sequence[Result]], runs: Sequence[str]) -> Html:
    """The results of a group; columns are named by dates or, of several runs, by runs."""
    is_one = len(runs) == 1
    names = [result.when[:10] for result in members[0]] if is_one else runs
    rows = [_row(name, cells) for name, cells in cells_of(members, is_one=is_one).items()]
    head = tag("thead", tag("tr", tag("th"), *(tag("th", name) for name in names)))
    about = ", ".join(filter(None, (group.data, group.protocol)))
    content = tag("div", tag("table", head, tag("tbody", *rows), class_="results"), class_="wide")
    return tag("div", tag("h3", group.evaluation), tag("p", about), content, class_="group")


def _row(name: str, cells: Sequence[Metric | None]) -> Html:
    known = [metric for metric in cells if metric is not None]
    best = best_of(known) if len(known) > 1 else None
    return tag("tr", tag("td", name), *(_cell(metric, best) for metric in cells))


def _cell(metric: Metric | None, best: Metric | None) -> Html:
    if metric is None:
        return tag("td", "")
    interval = metric.shown_interval().replace("-", "–")  # noqa: RUF001 - a dash between numbers
    is_best = best is not None and (metric == best or metric.ties_with(best))
    value = tag("span", f"{metric.shown()} {metric.unit}".strip(), class_="best" if is_best else None)
    return tag("td", join([value, tag("small", f"  {interval}") if interval else Html()]))
