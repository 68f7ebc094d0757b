"""Sections that every report has: results, curves and settings."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scfs.runs.results import read_results
from scfs.visualize.curves import save_curves
from scfs.visualize.page import Section, render_table

RESULT_HEAD = ("date", "evaluation", "data", "protocol", "metric", "value", "95 % interval")


def result_sections(run: Path) -> list[Section]:
    """A table of every metric of every evaluation of a run, oldest first; none without evaluations."""
    rows = result_rows(run)
    return [Section("Results", table=render_table(RESULT_HEAD, rows))] if rows else []


def result_rows(run: Path) -> list[list[str]]:
    """A row for every metric of every evaluation of a run, oldest first, under `RESULT_HEAD`."""
    return [
        [
            result.when[:10],
            result.evaluation,
            result.data,
            result.protocol,
            metric.axis_label,
            metric.shown(),
            metric.shown_interval(),
        ]
        for result in read_results(run)
        for metric in result.metrics
    ]


def curve_sections(folder: Path, rows: Sequence[dict[str, Any]]) -> list[Section]:
    """The curves of a training, drawn into the report's folder; none if nothing was logged."""
    return [Section("Curves", picture="curves.png")] if save_curves(folder / "curves.png", rows) else []


def setting_section(settings: Mapping[str, Any]) -> Section:
    """A table of all settings, by section."""
    rows = []
    for section, values in settings.items():
        for name, value in values.items() if isinstance(values, dict) else [("", values)]:
            rows.append([f"{section}.{name}".rstrip("."), str(value)])
    return Section("Settings", table=render_table((), rows))
