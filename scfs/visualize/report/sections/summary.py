"""The verdict on each run, and the facts that one asks for first."""

from collections.abc import Mapping, Sequence

from scfs.visualize.report.markup import Html, columns, folded, join, tag
from scfs.visualize.report.run import ReportedRun

SIGNS = {"good": "✓", "caution": "!", "bad": "✕"}
MAX_LISTED = 50  # unreadable images


def summary(runs: Sequence[ReportedRun], photo_facts: Mapping[str, str]) -> Html:
    """A card for each run; photo_facts: what is known of the photos, which all runs share."""
    return columns([_card(run, photo_facts, is_one=len(runs) == 1) for run in runs])


def _card(run: ReportedRun, photo_facts: Mapping[str, str], *, is_one: bool) -> Html:
    verdict = run.verdict
    name = Html() if is_one else tag("p", run.name, class_="run")
    reasons = [tag("p", reason) for reason in verdict.reasons]
    facts = {**photo_facts, **_facts(run)}
    listed = tag("dl", *(tag("div", tag("dt", key), tag("dd", value)) for key, value in facts.items()), class_="facts")
    headline = tag("p", f"{SIGNS[verdict.level]} {verdict.headline}", class_="headline")
    return tag(
        "div",
        name,
        headline,
        *reasons,
        listed,
        _warnings(run),
        _unreadable(run),
        class_=f"card verdict {verdict.level}",
    )


def duration(seconds: float) -> str:
    """A time in the unit that suits it."""
    for unit, length in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.0f} s"


def _facts(run: ReportedRun) -> dict[str, str]:
    if run.config is None:
        steps = max((int(row["step"]) for row in run.rows), default=0)
        return {"trained by": f"scfs {run.task}", "steps": f"{steps:,}"}
    done = max((int(row["step"]) for row in run.rows), default=0)
    speed = [row["images_per_second"] for row in run.rows if "images_per_second" in row]
    facts = {
        "unreadable photos": f"{len(run.unreadable):,}" if run.unreadable else "none",
        "steps": f"{done:,} of {run.total_steps:,} ({run.config.optim.epochs} epochs)",
        "training time": f"about {duration(run.seconds)}",
        "speed": f"{sorted(speed)[len(speed) // 2]:,.0f} images/s" if speed else "",
        "network": run.config.backbone.name,
        "warnings": str(len(run.verdict.warnings)) if run.verdict.warnings else "none",
    }
    return {name: value for name, value in facts.items() if value}


def _warnings(run: ReportedRun) -> Html:
    if not run.verdict.warnings:
        return Html()
    rows = [tag("li", f"From step {step} on, {message}") for step, message in run.verdict.warnings]
    return folded("Warnings during training", tag("ul", *rows))


def _unreadable(run: ReportedRun) -> Html:
    if not run.unreadable:
        return Html()
    rows = [tag("li", line) for line in run.unreadable[:MAX_LISTED]]
    more = len(run.unreadable) - MAX_LISTED
    rest = [tag("li", f"and {more:,} more, in unreadable.txt")] if more > 0 else []
    return folded("Photos that could not be read", join([tag("ul", *rows, *rest)]))
