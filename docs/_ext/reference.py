"""Directives whose content comes from the code: commands, settings, recipes and Python names."""

import argparse
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from docutils import nodes
from pydantic import BaseModel
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import scfs
from scfs.commands import COMMANDS, Command
from scfs.config import Config
from scfs.flags import COMMON, CommandParser
from scfs.recipes.catalogue import FOLDERS, Header, read_header, recipe_names

REPO = Path(__file__).parent.parent.parent
RETURNED = (
    *("scfs.runs.metric.Metric", "scfs.runs.curves.Curve", "scfs.data.sources.Source", "scfs.view_batch.ViewBatch"),
    *("scfs.evaluate.predict.Prediction", "scfs.evaluate.embed.Match", "scfs.visualize.neighbours.Neighbours"),
    "scfs.exporting.exported.Exported",
)


class Flag(NamedTuple):
    """A flag of a command as its help shows it."""

    name: str  # the setting, or the name of the switch
    forms: str  # such as --cached, --no-cached
    values: str  # such as INT|{auto}
    about: str
    default: str


def command_flags(command: Command) -> Iterator[Flag]:
    """Every flag of a command, but those that all commands have."""
    common = {flag for flags in COMMON for flag in flags}
    models: list[BaseModel] = [_load(path)() for path in (command.settings, command.recipe_settings) if path]
    for action in CommandParser(command, *models).known:
        if not common & {*action.option_strings}:
            yield _flag(action)


def _flag(action: argparse.Action) -> Flag:
    text = (action.help or "").replace("%%", "%")
    about, _, default = text.removesuffix(")").rpartition("(default: ") if text.endswith(")") else (text, "", "")
    values = "" if action.nargs == 0 else f"{action.metavar}{' ...' if action.nargs == '+' else ''}"
    return Flag(action.dest, ", ".join(action.option_strings), values, about.strip(), default)


def commands() -> str:
    """Every command: usage, arguments and flags."""
    return "\n".join(_command(command) for command in COMMANDS.values())


def _command(command: Command) -> str:
    arguments = "\n".join(f"- `{argument.usage}`: {argument.about}" for argument in command.arguments)
    flags = list(command_flags(command))
    own = [flag for flag in flags if "." not in flag.name]
    parts = [f"## scfs {command.name}", command.about, f"```text\n{command.usage}\n```", arguments]
    parts += [f"```{{program}} scfs {command.name}\n```", *map(_option, own)]
    if len(own) < len(flags):
        parts.append("All [settings](settings.md) of a recipe are flags too, such as `--optim.epochs 50`.")
        aliases = [f"`--{alias}` is short for `--{name}`." for alias, name in command.aliases.items() if "." in name]
        parts += aliases
    return "\n\n".join(part for part in parts if part) + "\n"


def _option(flag: Flag) -> str:
    signature = ", ".join(f"{form} {flag.values}".strip() for form in flag.forms.split(", "))
    return f"````{{option}} {signature}\n{_described(flag)}\n````"


def _described(flag: Flag) -> str:
    """What a flag does, and its default, as in the help."""
    return f"{flag.about} (default: `{flag.default}`)".strip() if flag.default else flag.about


def settings() -> str:
    """Every setting of pre-training by section: type, default, description."""
    parts: list[str] = []
    flags = {flag.name: flag for flag in command_flags(COMMANDS["pretrain"])}
    sections = {name: value for name, value in Config() if isinstance(value, BaseModel)}
    parts += ["## Top level", *(_setting(flags[name]) for name in Config.model_fields if name in flags)]
    for section, model in sections.items():
        parts += [f"## {section}", str(type(model).__doc__)]
        parts += [_setting(flags[f"{section}.{name}"]) for name in type(model).model_fields]
    return "\n\n".join(parts) + "\n"


def _setting(flag: Flag) -> str:
    about = f": {flag.about}" if flag.about else ""
    return f"````{{confval}} {flag.name}\n`{flag.values or 'true|false'}`, default `{flag.default}`{about}\n````"


def recipes() -> str:
    """Every recipe: its title and the fields of its header."""
    parts = []
    for kind, folder in FOLDERS.items():
        parts.append(f"## For scfs {kind}")
        for name in recipe_names(kind):
            path = folder / f"{name}.toml"
            parts.append(_recipe(name, read_header(path), path.relative_to(REPO)))
    return "\n\n".join(parts) + "\n"


def _recipe(name: str, header: Header, path: Path) -> str:
    rows = [f"- {field}: {_linked(' '.join(lines))}" for field, lines in header.fields.items() if field != "command"]
    command = "\n".join(header.fields["command"])
    return "\n\n".join(
        [f"### {name}", header.title, f"```text\n{command}\n```", "\n".join(rows), f"[`{path}`](../../{path})"]
    )


def _linked(text: str) -> str:
    """Pages as links."""
    return re.sub(r"docs/(\w+)\.md", r"[\1](../\1.md)", text)


def python_names() -> str:
    """Every public name, documented by its docstring."""
    public = {f"scfs.{name}": getattr(scfs, name) for name in scfs.__all__ if not name.startswith("__")}
    functions = [f".. autofunction:: {name}" for name, value in public.items() if not isinstance(value, type)]
    types = [name for name, value in public.items() if isinstance(value, type)]
    documented = [f".. auto{_kind(public.get(name))}:: {name}\n   :members:" for name in [*types, *RETURNED]]
    return "\n\n".join(
        ["## Functions", _restructured(functions), "## What they return and raise", _restructured(documented)]
    )


def _kind(value: object) -> str:
    return "exception" if isinstance(value, type) and issubclass(value, Exception) else "class"


def _restructured(blocks: list[str]) -> str:
    return "```{eval-rst}\n" + "\n\n".join(blocks) + "\n```"


def _load(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


def _directive(write: Callable[[], str]) -> type[SphinxDirective]:
    class Generated(SphinxDirective):
        def run(self) -> list[nodes.Node]:
            return self.parse_text_to_nodes(write(), allow_section_headings=True)

    return Generated


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    for write in (commands, settings, recipes, python_names):
        app.add_directive(write.__name__.replace("_", "-"), _directive(write))
    return {"parallel_read_safe": True}
