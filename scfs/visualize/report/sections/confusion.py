"""Which classes a classifier takes for which, after linear or finetune."""

from collections.abc import Mapping, Sequence
from typing import Any

from scfs.evaluate.confusion import CONFUSION, PER_CLASS
from scfs.runs.results import Result
from scfs.visualize.report.markup import Html, Section, columns, folded, join, table, tag
from scfs.visualize.report.run import ReportedRun

CELL, MAX_NUMBERED, NAME_LENGTH = 34, 20, 22
NUM_MISTAKES, NUM_LISTED = 6, 12


def confusion_section(runs: Sequence[ReportedRun]) -> Section | None:
    """The latest table of each evaluation of each run."""
    cards = []
    for run in runs:
        latest = {result.evaluation: result for result in run.results if {CONFUSION, PER_CLASS} & {*result.details}}
        cards += [_card(run, result, is_one=len(runs) == 1) for result in latest.values()]
    if not cards:
        return None
    return Section(
        "Confusion", columns(cards, class_="columns roomy"), "Rows are the true classes, columns the predictions."
    )


def mistakes(classes: Sequence[str], counts: Sequence[Sequence[int]]) -> list[tuple[str, str, int, int]]:
    """True class, prediction, how often, and of how many images, the most frequent first."""
    found = [
        (classes[i], classes[j], count, sum(row))
        for i, row in enumerate(counts)
        for j, count in enumerate(row)
        if i != j and count
    ]
    return sorted(found, key=lambda each: -each[2])


def _card(run: ReportedRun, result: Result, *, is_one: bool) -> Html:
    title = " · ".join(filter(None, ("" if is_one else run.name, result.evaluation, result.metrics[0].__str__())))
    if CONFUSION not in result.details:
        return tag("div", tag("h3", title), _per_class(result.details[PER_CLASS]))
    classes, counts = (result.details[CONFUSION][name] for name in ("classes", "counts"))
    worst = [f"{true} → {predicted}: {count} of {total}" for true, predicted, count, total in mistakes(classes, counts)]
    listed = tag("p", f"Most frequent mistakes: {'; '.join(worst[:NUM_MISTAKES])}." if worst else "No mistakes.")
    return tag("div", tag("h3", title), tag("div", _heat(classes, counts), class_="wide"), listed)


def _heat(classes: Sequence[str], counts: Sequence[Sequence[int]]) -> Html:
    """A square per pair of classes, darker where it is a larger fraction of the true class."""
    count, numbered = len(classes), len(classes) <= MAX_NUMBERED
    cell = CELL if numbered else max(6, 640 // count)
    left = 150 if numbered else 0
    parts = []
    for i, row in enumerate(counts):
        total = max(1, sum(row))
        if numbered:
            name = tag("text", _short(classes[i]), x=left - 6, y=(i + 0.5) * cell + 4, text_anchor="end")
            parts.append(name)
        for j, number in enumerate(row):
            if number:
                parts.append(
                    _cell(left + j * cell, i * cell, cell, number / total, f"{classes[i]} as {classes[j]}: {number}")
                )
                if numbered:
                    middle = left + (j + 0.5) * cell
                    parts.append(tag("text", str(number), x=middle, y=(i + 0.5) * cell + 4, text_anchor="middle"))
    below = [_tilted(classes[j], left + (j + 0.5) * cell, count * cell + 10) for j in range(count)] if numbered else []
    width, height = left + count * cell + 4, count * cell + (95 if numbered else 0)
    style = f"max-width:{width}px"
    return tag("svg", *parts, *below, viewBox=f"0 0 {width} {height}", class_="heat", style=style, role="img")


def _cell(x: float, y: float, side: int, fraction: float, about: str) -> Html:
    style = f"fill-opacity:{0.08 + 0.72 * fraction:.2f}"
    return tag("rect", tag("title", about), x=x, y=y, width=side - 1, height=side - 1, style=style)


def _tilted(name: str, x: float, y: float) -> Html:
    return tag("text", _short(name), x=x, y=y, text_anchor="end", transform=f"rotate(-50 {x:g} {y:g})")


def _short(name: str) -> str:
    return name if len(name) <= NAME_LENGTH else f"{name[: NAME_LENGTH - 1]}…"


def _per_class(accuracies: Mapping[str, Any]) -> Html:
    """The worst and best classes of many, and all of them folded."""
    ordered = sorted(accuracies.items(), key=lambda each: each[1])
    rows = [[name, f"{value:.0%}"] for name, value in ordered]
    worst, best = rows[:NUM_LISTED], rows[::-1][:NUM_LISTED]
    parts = [tag("div", tag("h4", name), table((), some)) for name, some in (("worst", worst), ("best", best))]
    return join([columns(parts), folded(f"All {len(rows)} classes", table((), rows))])
