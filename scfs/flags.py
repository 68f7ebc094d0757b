"""The flags of a command, generated from its row in the table and its settings, and parsed by argparse.

Why not a library that builds a command line from pydantic models: tried with their usual set-up, none of tyro, cyclopts
and pydantic-settings accepted all of `--k 10 20`, `--cached`, `--cached true` and a list that may also be `auto`, and
each of them checks and reports a mistake in a flag differently from the same mistake in a recipe. Here argparse only
splits the command line; pydantic checks recipe and flags together.
"""

import argparse
import re
from collections.abc import Iterator, Sequence
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from scfs.commands import Command
from scfs.errors import UserError
from scfs.recipe import unknown_setting

TRUE, FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
COMMON = {
    ("-h", "--help"): "show this help",
    ("-v", "--verbose"): "print more, such as the resolved settings",
    ("-q", "--quiet"): "show only warnings and errors",
}


class Parsed(NamedTuple):
    """A parsed command line, without the command."""

    targets: list[str]
    flags: dict[str, Any]  # settings by full name
    switches: dict[str, bool]  # flags that are not settings

    @property
    def lists(self) -> list[str]:
        """Flags that were given several values."""
        return [name for name, value in self.flags.items() if isinstance(value, list)]


class CommandParser(argparse.ArgumentParser):
    """Parses the flags of a command; its help shows the values of `settings`."""

    def __init__(self, command: Command, *settings: BaseModel):
        super().__init__(prog=f"scfs {command.name}", add_help=False, allow_abbrev=False, exit_on_error=False)
        # argparse does not know the targets: read() finds them among the flags, wherever they are.
        targets = "".join(f"\n  {argument.name:22}  {argument.about}" for argument in command.arguments)
        self.usage, self.description = command.usage, f"{command.about}\n{targets}".strip().replace("%", "%%")
        self.formatter_class = _Formatter
        self.command = command
        self.actions: dict[str, argparse.Action] = {}  # by the flag, with underscores throughout
        for flags, about in COMMON.items():
            self._register(self.add_argument(*flags, action="store_true", help=about))
        for name, about in command.switches.items():
            self._register(self.add_argument(f"--{name}", action="store_true", help=about))
        for model in settings[:1]:
            self._add_settings(model)
        for model in settings[1:]:  # of recipes: their flags have a section
            self._add_sections(model)

    def _register(self, action: argparse.Action) -> None:
        self.actions |= {_underscored(flag): action for flag in action.option_strings}

    @property
    def known(self) -> list[argparse.Action]:
        """Every flag's action, once."""
        return list(dict.fromkeys(self.actions.values()))

    def _add_settings(self, settings: BaseModel, prefix: str = "") -> None:
        plain = [name for name, value in settings if not isinstance(value, BaseModel)]
        if plain:
            group = self.add_argument_group(prefix.rstrip(".") or "settings", type(settings).__doc__)
            for name in plain:
                self._add_setting(group, prefix + name, type(settings).model_fields[name], getattr(settings, name))
        self._add_sections(settings, prefix)

    def _add_sections(self, settings: BaseModel, prefix: str = "") -> None:
        for name, value in settings:
            if isinstance(value, BaseModel):
                self._add_settings(value, f"{prefix}{name}.")

    def _add_setting(self, group: Any, name: str, field: FieldInfo, value: Any) -> None:
        flags = [f"--{name}", *(f"--{alias}" for alias, of in self.command.aliases.items() if of == name)]
        about = f"{field.description or ''} (default: {_shown(value)})".strip().replace("%", "%%")
        keywords: dict[str, Any] = {"dest": name, "default": argparse.SUPPRESS, "help": about}
        if field.annotation is bool:
            self._register(group.add_argument(*flags, action=_Switch, **keywords))
            return
        nargs = "+" if _takes_many(field.annotation) else None
        metavar = _metavar(field.annotation)
        self._register(group.add_argument(*flags, action=_Once, metavar=metavar, nargs=nargs, **keywords))

    def read(self, args: Sequence[str]) -> Parsed:
        """Parse targets and flags in any order; a list takes every value up to the next flag or `--`."""
        end = args.index("--") if "--" in args else len(args)
        try:
            found, rest = self.parse_known_args(list(self._normalized(args[:end])))
        except argparse.ArgumentError as error:
            raise _as_user_error(error) from None
        for arg in rest:
            if arg.startswith("-") and not re.match(r"-\.?\d", arg):
                raise self._unknown(arg)
        values = {name: value for name, value in vars(found).items() if name not in self._switches()}
        flags = {name: v[0] if isinstance(v, list) and len(v) == 1 else v for name, v in values.items()}
        switches = {name: bool(getattr(found, name)) for name in self._switches()}
        return Parsed([*rest, *args[end + 1 :]], flags, switches)

    def _switches(self) -> list[str]:
        names = [*(flags[-1].lstrip("-") for flags in COMMON), *self.command.switches]
        return [name.replace("-", "_") for name in names]

    def _normalized(self, args: Sequence[str]) -> Iterator[str]:
        """Flags as argparse knows them: underscores for hyphens, `--cached` for `--cached true`, and so on."""
        queue = list(args)
        while queue:
            arg = queue.pop(0)
            flag, equals, value = arg.partition("=")
            name = _underscored(flag)
            if name not in self.actions:  # --method.no-data-term
                name = re.sub(r"^--(.*\.)no_", r"--no_\1", name)
            action = self.actions.get(name)
            if action is None:
                yield f"{_underscored(flag)}{equals}{value}" if arg.startswith("--") else arg
                continue
            normalized = next(known for known in action.option_strings if _underscored(known) == name)
            if action.nargs == 0 and not equals and queue and queue[0].lower() in (*TRUE, *FALSE):
                equals, value = "=", queue.pop(0)
            if action.nargs == 0 and value.lower() in (*TRUE, *FALSE):
                if value.lower() in TRUE:
                    yield normalized
                elif isinstance(action, _Switch):
                    yield action.opposite(normalized)
                continue
            yield f"{normalized}{equals}{value}"

    def _unknown(self, arg: str) -> UserError:
        name = arg.partition("=")[0]
        known = {action.dest for action in self.known} - {*self._switches()}
        if not name.startswith("--") or not known:
            return UserError(f"Unknown flag '{name}'; scfs {self.command.name} --help lists the flags.")
        return unknown_setting(name[2:], known)


class _Formatter(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str):
        super().__init__(prog, max_help_position=28)


def _underscored(flag: str) -> str:
    return f"--{flag[2:].replace('-', '_')}" if flag.startswith("--") else flag


def _refuse_second(namespace: argparse.Namespace, name: str) -> None:
    if hasattr(namespace, name):
        raise UserError(f"Setting '{name}' is given twice on the command line; give it once.")


class _Once(argparse.Action):
    """Stores a value or a list of them; giving the setting twice is an error."""

    def __call__(self, _: Any, namespace: argparse.Namespace, values: Any, __: Any = None) -> None:
        _refuse_second(namespace, self.dest)
        setattr(namespace, self.dest, values)


class _Switch(argparse.BooleanOptionalAction):
    """--cached or --no-cached, once."""

    def opposite(self, flag: str) -> str:
        """The flag for the opposite value."""
        is_no = flag.startswith("--no-")
        return next(other for other in self.option_strings if other.startswith("--no-") != is_no)

    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, flag: str | None = None) -> None:
        _refuse_second(namespace, self.dest)
        super().__call__(parser, namespace, values, flag)


def _as_user_error(error: argparse.ArgumentError) -> UserError:
    name = str(error.argument_name).partition("/")[0].lstrip("-")
    if error.message.startswith("ignored explicit argument"):
        return UserError(f"Setting '{name}' cannot be {error.message[26:]}; it should be true or false.")
    return UserError(f"Setting '{name}' has no value; give it as --{name} VALUE.")


def _alternatives(annotation: Any) -> Iterator[Any]:
    """The types of a union, or the one type."""
    if get_origin(annotation) is Annotated:
        yield from _alternatives(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, UnionType):
        for part in get_args(annotation):
            yield from _alternatives(part)
    else:
        yield annotation


def _takes_many(annotation: Any) -> bool:
    return any(get_origin(part) is tuple for part in _alternatives(annotation))


def _metavar(annotation: Any) -> str:
    """For example INT|{auto}."""
    return "|".join(_form(part) for part in _alternatives(annotation) if part is not type(None))


def _form(part: Any) -> str:
    if get_origin(part) is Literal:
        return "{" + ",".join(get_args(part)) + "}"
    if get_origin(part) is tuple:
        return _metavar(get_args(part)[0])
    return str(getattr(part, "__name__", part)).upper()


def _shown(value: Any) -> str:
    if isinstance(value, tuple | list):
        return " ".join(map(str, value)) or "none"
    return repr(value) if value == "" else str(value).lower() if isinstance(value, bool) else str(value)
