"""How a pre-training went, in words, from its log alone."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from scfs.runs.findings import (
    ABOVE,
    BLANK,
    COLLAPSE,
    CONSTANT,
    FLAT_HEAD,
    FROZEN_TEACHER,
    INDISTINCT,
    SAME,
    SAME_NETWORK,
    SHRUNK,
    UNINFORMATIVE,
    WINDOW,
    Finding,
    findings,
    first_check,
)
from scfs.runs.metric import PER_CENT, Metric
from scfs.runs.metrics_log import logged_metrics

Row = Mapping[str, Any]
Level = Literal["good", "caution", "bad"]

MIN_ROWS = 3  # to average over, where fewer were logged within a window
SHORT_STEPS = 200  # below, nothing is said about success; like the two factors below a rule of thumb, not measured
GROWN = 1.5  # times the loss of the first steps: it diverges

HEADLINES = {
    COLLAPSE: "Collapsed",
    BLANK: "Blank views",
    INDISTINCT: "Images are not told apart",
    SAME: "A head has collapsed",
    CONSTANT: "A head has collapsed",
    ABOVE: "Diverged",
    UNINFORMATIVE: "A head has collapsed",
    FLAT_HEAD: "Flat head",
    SAME_NETWORK: "The teacher is the student",
    FROZEN_TEACHER: "The teacher does not move",
}


MILD = (FLAT_HEAD, SAME_NETWORK, FROZEN_TEACHER)


class Warned(NamedTuple):
    """A warning and the logged step at which it first applied."""

    step: int
    message: str


class Verdict(NamedTuple):
    """How a run went: a headline, why, and what was noticed on the way."""

    level: Level
    headline: str
    reasons: list[str]
    warnings: list[Warned]


class _Judged(NamedTuple):
    level: Level
    headline: str
    reason: str


def judge(rows: Sequence[Row], *, epochs: int, num_outputs: Callable[[str], int | None]) -> Verdict:
    """The verdict on a run of so many epochs from the rows of its log.

    num_outputs: K of the head of a term, None if it has no softmax. The worst finding gives the headline; all of them
    are reasons.
    """
    steps = [row for row in rows if "loss" in row]
    if not steps:
        return Verdict("caution", "Not started", ["No step has been logged yet."], [])
    total = total_steps(steps, epochs)
    found = [*_diverged(steps), *_collapsed(steps, num_outputs), *_unfinished(steps, total), *_score(rows, total)]
    warnings = [*_warnings(steps, total, num_outputs)]
    if not found:
        return Verdict("good", "Healthy", [_healthy(steps), *_gains(rows)], warnings)
    return Verdict(found[0].level, found[0].headline, [*(each.reason for each in found), *_gains(rows)], warnings)


def total_steps(rows: Sequence[Row], epochs: int) -> int:
    """How many steps a run has, from a logged step and its epoch."""
    last = rows[-1]
    return round(epochs * last["step"] / last["epoch"]) if last.get("epoch") else int(last["step"])


def means_at(rows: Sequence[Row], index: int) -> dict[str, float]:
    """Means of the numbers that the row at an index has, over the rows within a window that ends there."""
    end = rows[index]["step"]
    recent: Sequence[Row] = [row for row in rows[: index + 1] if row["step"] > end - WINDOW]
    recent = recent if len(recent) >= MIN_ROWS else rows[max(0, index + 1 - MIN_ROWS) : index + 1]
    numbers = [name for name, value in rows[index].items() if isinstance(value, int | float)]
    having = {name: [row[name] for row in recent if name in row] for name in numbers}
    return {name: sum(values) / len(values) for name, values in having.items()}


def _diverged(steps: Sequence[Row]) -> Iterator[_Judged]:
    broken = [row["step"] for row in steps if not math.isfinite(row["loss"])]
    if broken:
        reason = f"The loss was not finite at step {broken[0]}. Lower optim.lr or lengthen optim.warmup_epochs."
        yield _Judged("bad", "Diverged", reason)
        return
    first, last = means_at(steps, min(MIN_ROWS, len(steps)) - 1)["loss"], means_at(steps, len(steps) - 1)["loss"]
    if last > GROWN * first > 0:
        reason = f"The loss grew from {first:.2f} to {last:.2f}. Lower optim.lr or lengthen optim.warmup_epochs."
        yield _Judged("bad", "Diverged", reason)


def _collapsed(steps: Sequence[Row], num_outputs: Callable[[str], int | None]) -> Iterator[_Judged]:
    """What is wrong in the last steps, worst first."""
    order = [*HEADLINES]
    found = sorted(findings(means_at(steps, len(steps) - 1), num_outputs), key=lambda each: order.index(each.kind))
    for kind, _, message in found:
        yield _Judged("caution" if kind in MILD else "bad", HEADLINES[kind], f"At the end {message}")


def _unfinished(steps: Sequence[Row], total: int) -> Iterator[_Judged]:
    done = int(steps[-1]["step"])
    if done < total:
        yield _Judged(
            "caution",
            "Unfinished",
            f"{done} of {total} steps are done ({done / total:.0%}); everything below is about the last checkpoint.",
        )
    if total < SHORT_STEPS:
        yield _Judged(
            "caution",
            "Too short to judge",
            f"The run has only {total} steps, too few to say how training goes (as a rule of thumb, at least "
            f"{SHORT_STEPS}); aim for a few thousand: more epochs or smaller batches.",
        )


def _score(rows: Sequence[Row], total: int) -> Iterator[_Judged]:
    """Scores that did not rise, once a run is long enough for it."""
    if total < SHORT_STEPS:
        return
    ends = _ends(rows)
    if (knn := ends.get("k-NN top-1")) is not None and knn[1].value <= knn[0].bounds[1]:
        first, last = (metric.shown() for metric in knn)
        yield _Judged(
            "caution",
            "No gain",
            f"k-NN top-1 is {last} % after training and was {first} % before: no difference that its interval would "
            "tell from chance.",
        )
    if (rank := ends.get("RankMe")) is not None and rank[1].value < SHRUNK * rank[0].value:
        first, last = (metric.shown() for metric in rank)
        yield _Judged(
            "caution",
            "Features lose dimensions",
            f"The effective rank of the features fell from {first} to {last}: a sign of a partial collapse.",
        )


def _gains(rows: Sequence[Row]) -> Iterator[str]:
    """How the metrics changed from the first to the last evaluation."""
    for name, (first, last) in _ends(rows).items():
        unit = f" {PER_CENT}" if last.unit == PER_CENT else ""
        yield f"{name}: {first.shown()}{unit} before training, {last.shown()}{unit} after."


def _ends(rows: Sequence[Row]) -> dict[str, tuple[Metric, Metric]]:
    """The first and last of each metric that was computed at least twice; RankMe and k-NN top-1, if there are any."""
    logged = {name: points for name, points in logged_metrics(rows).items() if len(points) > 1}
    return {name: (logged[name][0][1], logged[name][-1][1]) for name in ("k-NN top-1", "RankMe") if name in logged}


def _healthy(steps: Sequence[Row]) -> str:
    first, last = means_at(steps, min(MIN_ROWS, len(steps)) - 1)["loss"], means_at(steps, len(steps) - 1)["loss"]
    moved = f"The loss went from {first:.2f} to {last:.2f}"
    return f"{moved}, and features and heads differ between images in the last steps."


def _warnings(steps: Sequence[Row], total: int, num_outputs: Callable[[str], int | None]) -> Iterator[Warned]:
    """Each kind of finding once, at the first logged step after which it held."""
    seen: set[tuple[str, str]] = set()
    for index, row in enumerate(steps):
        if row["step"] < first_check(total):
            continue
        for finding in findings(means_at(steps, index), num_outputs):
            yield from _once(row["step"], finding, seen)


def _once(step: int, finding: Finding, seen: set[tuple[str, str]]) -> Iterator[Warned]:
    key = finding.kind, finding.term
    if key not in seen:
        seen.add(key)
        yield Warned(step, finding.message)


def judge_task(rows: Sequence[Row], task: str, metrics: Sequence[Metric], *, is_finished: bool) -> Verdict:
    """The verdict on a training with labels, such as finetune, from its log and the metrics of its result."""
    broken = [*_diverged([row for row in rows if "loss" in row])] if any("loss" in row for row in rows) else []
    if broken:
        return Verdict(broken[0].level, broken[0].headline, [broken[0].reason], [])
    if not is_finished:
        reason = f"The network is not saved yet; run the same scfs {task} again, which resumes it."
        return Verdict("caution", "Unfinished", [reason], [])
    scores = [
        f"{metric}{f' (95 % interval {each})' if (each := metric.shown_interval()) else ''}" for metric in metrics
    ]
    return Verdict("good", "Finished", [", ".join(scores[:3])] if scores else [], [])
