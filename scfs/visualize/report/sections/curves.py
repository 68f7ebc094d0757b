"""The log of training as curves."""

import math
from collections.abc import Iterator, Sequence

from scfs.runs.metric import Metric
from scfs.runs.metrics_log import logged_metrics
from scfs.visualize.report.charts import Chart, Line, Points, Reference, chart
from scfs.visualize.report.markup import Section, tag
from scfs.visualize.report.run import ReportedRun

# Older versions logged one entropy.
NAMES = {"teacher_entropy": "view", "feature_spread": "features"}


def curve_section(runs: Sequence[ReportedRun]) -> Section | None:
    """Curves of one run, several in a plot; of several runs, one quantity in a plot and a colour per run."""
    charts = [*(_of_one(runs[0]) if len(runs) == 1 else _of_several(runs))]
    if not charts:
        return None
    intro = (
        "A dashed line is the loss of a head that gives every output the same probability (ln K): a term that stays "
        "there teaches nothing."
    )
    has_reference = any(content.references for content in charts)
    plots = tag("div", *(chart(content) for content in charts), class_="charts")
    return Section("Curves", plots, intro if has_reference else "")


def series(run: ReportedRun) -> dict[str, dict[str, Points]]:
    """Everything that was logged, by quantity and then by name: {"loss": {"view": points}, ...}."""
    found: dict[str, dict[str, Points]] = {}
    for row in run.rows:
        terms = any(name.startswith("loss/") for name in row)
        for name, value in row.items():
            kind, _, term = name.partition("/")
            if (kind in ("loss", "entropy", "spread") and term) or (name == "loss" and not terms):
                found.setdefault(kind, {}).setdefault(term or "loss", []).append((row["step"], value))
            elif name in NAMES:
                kind = "entropy" if name == "teacher_entropy" else "spread"
                found.setdefault(kind, {}).setdefault(NAMES[name], []).append((row["step"], value))
            elif name in ("lr", "images_per_second"):
                found.setdefault(name, {})[name] = [*found.get(name, {}).get(name, []), (row["step"], value)]
    for name, points in logged_metrics(run.rows).items():
        kind = _unit_group(points[0][1])
        found.setdefault(kind, {})[name] = [(step, metric.scale * metric.value) for step, metric in points]
    return found


TITLES = {  # of quantities, in the order of the page: title and name of the axis
    "loss": ("Loss by term", "loss"),
    "score": ("Scores during training", "%"),
    "rank": ("Effective rank of the features", "RankMe"),
    "entropy": ("Entropy of the teacher's outputs", "fraction of ln K"),
    "spread": ("Spread over images", "spread (0: all the same)"),
    "other": ("Other metrics", "value"),
    "lr": ("Learning rate", "learning rate"),
    "images_per_second": ("Speed", "images/s"),
}


def uniform_loss(run: ReportedRun, term: str) -> float | None:
    """The loss of uniform outputs of a term, ln K times the weight of its layer; None without a softmax."""
    if run.config is None or (outputs := run.config.method.num_outputs(term)) is None:
        return None
    plan = run.config.method.plan
    num_terms = bool(plan.layer_views) + bool(plan.targets)
    weight = run.config.method.search_weight / max(1, num_terms) if "/" in term else 1.0
    return weight * math.log(outputs)


def _unit_group(metric: Metric) -> str:
    if metric.name == "RankMe":
        return "rank"
    return "score" if metric.unit == "%" else "other"


def _of_one(run: ReportedRun) -> Iterator[Chart]:
    found = series(run)
    for kind, (title, label) in TITLES.items():
        lines = [Line(name, points, number) for number, (name, points) in enumerate(found.get(kind, {}).items())]
        if lines:
            yield Chart(title, label, lines, _references(run, lines) if kind == "loss" else ())


def _references(run: ReportedRun, lines: Sequence[Line]) -> list[Reference]:
    """The uniform loss of each head; one line for heads that share it."""
    values: dict[float, list[Line]] = {}
    for line in lines:
        if (value := uniform_loss(run, line.name)) is not None:
            values.setdefault(round(value, 6), []).append(line)
    return [
        Reference(f"uniform, {', '.join(line.name for line in group)}: {value:.2f}", value, group[0].colour)
        for value, group in values.items()
    ]


def _of_several(runs: Sequence[ReportedRun]) -> Iterator[Chart]:
    everything = [series(run) for run in runs]
    for kind, (title, label) in TITLES.items():
        names = dict.fromkeys(name for found in everything for name in found.get(kind, {}))
        for name in names:
            lines = [
                Line(run.name, found[kind][name], number)
                for number, (run, found) in enumerate(zip(runs, everything, strict=True))
                if name in found.get(kind, {})
            ]
            full = title if len(names) == 1 else f"{title.partition(' ')[0]}: {name}"
            yield Chart(full, label, lines, _uniform(runs, name) if kind == "loss" else (), False)


def _uniform(runs: Sequence[ReportedRun], term: str) -> list[Reference]:
    values = {round(value, 6): i for i, run in enumerate(runs) if (value := uniform_loss(run, term)) is not None}
    return [Reference(f"uniform: {value:.2f}", value, number) for value, number in values.items()]
