"""The settings of a run, what differs from its recipe first, and its environment."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scfs.config import Config
from scfs.runs.resume import flat
from scfs.visualize.report.markup import Html, Section, folded, join, table, tag
from scfs.visualize.report.run import ReportedRun
from scfs.visualize.report.sections.commands import command

UNINTERESTING = {"run.folder"}


def setting_section(runs: Sequence[ReportedRun]) -> Section:
    """Settings, environment and how to repeat the run; of several runs, what differs between them first."""
    parts = [_differences(runs)] if len(runs) > 1 else []
    for run in runs:
        title = [tag("h3", run.name)] if len(runs) > 1 else []
        parts += [*title, _changes(run), _choices(run), _all(run), _environment(run), *_repeat(run)]
    return Section("Settings and environment", join(parts))


def _differences(runs: Sequence[ReportedRun]) -> Html:
    values = [dict(flat(dict(run.settings))) for run in runs]
    names = [name for name in dict.fromkeys(name for each in values for name in each) if name not in UNINTERESTING]
    rows = [
        [name, *(_brief(each.get(name, "")) for each in values)]
        for name in names
        if len({_brief(each.get(name, "")) for each in values}) > 1
    ]
    if not rows:
        return tag("p", "The settings of the runs are the same.")
    head = ["differs", *(run.name for run in runs)]
    return table(head, rows, class_="settings")


def _changes(run: ReportedRun) -> Html:
    """What differs from the recipe, or without a record of it from the defaults."""
    if run.config is None:
        return Html()
    start: Mapping[str, Any] = run.starts[0] if run.starts else {}
    if "recipe" in start:
        rows = [[each["setting"], _brief(each["value"]), _brief(each["before"])] for each in start["changes"]]
        rows = [row for row in rows if row[0] not in UNINTERESTING]
        title, other = f"Changed in the recipe {start['recipe']}", "recipe"
        nothing = f"The settings are those of the recipe {start['recipe']}."
    else:
        defaults = dict(flat(Config().model_dump(mode="json")))
        ours = dict(flat(run.config.model_dump(mode="json")))
        rows = [
            [name, _brief(value), _brief(defaults[name])] for name, value in ours.items() if value != defaults[name]
        ]
        title, other, nothing = "Different from the defaults", "default", "The settings are the defaults."
    return (
        join([tag("h3", title), table(("setting", "run", other), rows, class_="settings")])
        if rows
        else tag("p", nothing)
    )


def _choices(run: ReportedRun) -> Html:
    if not run.choices:
        return Html()
    rows = [[choice.setting, _brief(choice.value), choice.reason] for choice in run.choices]
    return folded("What auto chose, and why", table(("setting", "value", "reason"), rows, class_="settings"))


def _all(run: ReportedRun) -> Html:
    rows = [[name, _brief(value)] for name, value in flat(dict(run.settings))]
    return folded("All settings", table((), rows, class_="settings"))


def _environment(run: ReportedRun) -> Html:
    if not run.starts:
        return Html()
    shown = {name: value for name, value in run.starts[-1].items() if name not in ("command", "recipe", "changes")}
    rows = [[name, _brief(value)] for name, value in flat(shown)]
    starts = [["starts", str(len(run.starts))]] if len(run.starts) > 1 else []
    return folded("Environment", table((), [*starts, *rows], class_="settings"))


def _repeat(run: ReportedRun) -> list[Html]:
    """The command as it was given, if it was one, and the one that repeats the run from its folder."""
    if run.config is None:
        return []
    given: list[str] = (run.starts[0] if run.starts else {}).get("command", [])
    parts = []
    if given and Path(given[0]).name in ("scfs", "__main__.py"):
        parts += [
            tag("p", "It was started with:"),
            tag("pre", tag("code", shlex.join(["scfs", *given[1:]])), class_="command"),
        ]
    is_timed = any(choice.setting == "optim.epochs" for choice in run.choices)  # another run might have other epochs
    epochs = ["--optim.epochs", str(run.config.optim.num_epochs)] if is_timed else []
    return [*parts, tag("p", "To repeat it in a new folder:"), command("scfs", "pretrain", str(run.folder), *epochs)]


def _brief(value: Any) -> str:
    return ", ".join(str(each) for each in value) if isinstance(value, list | tuple) else str(value)
