"""Completion scripts, generated from the table of commands: `eval "$(scfs completion bash)"`."""

from collections.abc import Iterator
from importlib import import_module
from typing import NamedTuple

from rich.console import Console

from scfs.commands import COMMANDS, Command
from scfs.flags import CommandParser
from scfs.recipes.catalogue import FOLDERS, recipe_names

BASH = """\
_scfs() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} flags="" targets=""
    case "${{COMP_WORDS[*]:1:COMP_CWORD-1}} " in
{cases}
    esac
    if [[ $word == -* ]]; then
        COMPREPLY=($(compgen -W "$flags" -- "$word"))
    else
        COMPREPLY=($(compgen -W "$targets" -- "$word") $(compgen -f -- "$word"))
    fi
}}
complete -o filenames -F _scfs scfs
"""
ZSH = """\
#compdef scfs
_scfs() {{
    local flags="" targets=""
    case "${{(j: :)words[2,CURRENT-1]}} " in
{cases}
    esac
    if [[ $PREFIX == -* ]]; then
        compadd -- ${{=flags}}
    else
        compadd -- ${{=targets}}
        _files
    fi
}}
compdef _scfs scfs
"""


class Completions(NamedTuple):
    """What may follow a prefix of a command line."""

    prefix: str
    flags: dict[str, str]  # and their help
    targets: list[str]


def show(shell: str, *, console: Console) -> None:
    """Print the completion script of a shell: the `scfs completion` command."""
    print(script(shell), file=console.file, end="")


def script(shell: str) -> str:
    """A script that completes commands, flags, recipes by name, choices and files."""
    if shell == "fish":
        return "".join(f"{line}\n" for line in _fish())
    cases = [
        f'    {_pattern(row)}) flags="{" ".join(row.flags)}"; targets="{" ".join(row.targets)}" ;;' for row in _rows()
    ]
    return (BASH if shell == "bash" else ZSH).format(cases="\n".join(cases))


def _pattern(row: Completions) -> str:
    return f'"{row.prefix} "*' if row.prefix else '" "'


def _rows() -> Iterator[Completions]:
    """Commands of two words come first: the first matching pattern wins."""
    for command in sorted(COMMANDS.values(), key=lambda row: -len(row.name.split())):
        yield Completions(command.name, _flags(command), _targets(command))
    groups = {name.split()[0] for name in COMMANDS if " " in name}
    for group in sorted(groups):
        yield Completions(group, {"--help": ""}, [name.split()[1] for name in COMMANDS if name.startswith(f"{group} ")])
    yield Completions("", {"--help": "", "--version": ""}, _first_words())


def _first_words() -> list[str]:
    return list(dict.fromkeys(name.split()[0] for name in COMMANDS))


def _flags(command: Command) -> dict[str, str]:
    models = []
    for path in filter(None, (command.settings, command.recipe_settings)):
        module, _, name = path.partition(":")
        models.append(getattr(import_module(module), name)())
    parser = CommandParser(command, *models)
    return {flag: str(action.help) for action in parser.known for flag in action.option_strings if flag[:2] == "--"}


def _targets(command: Command) -> list[str]:
    found: list[str] = []
    for argument in command.arguments:
        found += argument.choices
        found += recipe_names(argument.recipe) if argument.recipe else []
    if command.name == "recipes":
        found += [name for kind in FOLDERS for name in recipe_names(kind)]
    return found + (_first_words() if command.name == "help" else [])


def _fish() -> Iterator[str]:
    """A line per command, flag and target."""
    for row in _rows():
        seen = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in row.prefix.split())
        when = seen or f"not __fish_seen_subcommand_from {' '.join(row.targets)}"
        for flag, about in row.flags.items():
            text = about.replace("%%", "%").replace("\\", "\\\\").replace("'", "\\'")
            yield f"complete -c scfs -n '{when}' -l {flag[2:]} -d '{text}'"
        if row.targets:
            yield f"complete -c scfs -n '{when}' -a '{' '.join(row.targets)}'"
