import textwrap
from collections.abc import Sequence
from typing import Any

from rich.console import Console

from scfs.config import Config
from scfs.pretraining.auto import Choice
from scfs.recipe import Change


def print_opening(
    title: str,
    config: Config,
    console: Console,
    *,
    changes: Sequence[Change] = (),
    choices: Sequence[Choice] = (),
    facts: dict[str, Any],
) -> None:
    """Print what is going to run: its title, what differs from the recipe, what `auto` chose and why, and `facts`.

    The resolved settings are for --verbose; a run also has them in its settings.toml.
    """
    print_line(title, console)
    for section, values in config.model_dump(mode="json").items():
        shown = values if isinstance(values, dict) else {"": values}
        line = "  ".join(f"{name} {_brief(value)}".strip() for name, value in shown.items())
        print_line(f"{section:9} {line}", console, style="dim")
    for change in changes:
        print_line(f"changed: {change.setting} = {_brief(change.value)} (recipe: {_brief(change.before)})", console)
    for choice in (each for each in choices if each.reason):
        print_line(f"auto: {choice.setting} = {_brief(choice.value)} ({choice.reason})", console)
    for name, value in facts.items():
        print_line(f"{name}: {value}", console)


def environment_line(facts: dict[str, Any]) -> str:
    """The versions, the device and its threads, from the record of a start."""
    commit = f" (commit {facts['commit']})" if facts["commit"] else ""
    torch = facts["packages"]["torch"]
    return f"scfs {facts['scfs']}{commit}, torch {torch}, {facts['device']}, {facts['threads']} threads"


def print_line(line: str, console: Console, style: str | None = None) -> None:
    """Print a line; a terminal gets it broken between words, a file as it is."""
    if console.is_terminal:
        line = textwrap.fill(line, console.width, break_long_words=False, break_on_hyphens=False)
    console.print(line, style=style)


def _brief(value: Any) -> str:
    return ",".join(str(each) for each in value) if isinstance(value, list | tuple) else str(value)
