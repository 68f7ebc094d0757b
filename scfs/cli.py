import difflib
import json
import os
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scfs import __version__
from scfs.commands import COMMANDS, Argument, Command
from scfs.errors import UserError, fixable, out_of_memory, out_of_shared_memory
from scfs.printable import printable
from scfs.process import own_process

if TYPE_CHECKING:
    from rich.console import Console

    from scfs.flags import Parsed
    from scfs.recipes.catalogue import Recipe

# Everything else is imported when a command needs it: help and bad input do not wait for torch.

HELP, VERSION, VERBOSITY = ("-h", "--help"), ("-V", "--version"), ("-v", "--verbose", "-q", "--quiet")
NOTES = """\
RUN_OR_WEIGHTS is a run folder, a checkpoint, an exported .safetensors or .pth, a weights file of timm, torchvision,
DINO, MoCo or the released SCFS code, or random:NAME (a timm model with random weights).
scfs COMMAND --help shows the settings with their values; for pretrain, after a RECIPE, those of the recipe.
Flags may come before or after the targets; a list, as in --k 10 20, takes every value up to the next flag or --.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """The `scfs` command. Returns the exit code: 2 for what the user can fix, 130 if stopped."""
    # How long threads spin while they wait for each other; read when torch is imported. The default is far higher and
    # starves whatever else runs on the same cores; but not spinning at all costs a step a fifth of its time.
    os.environ.setdefault("GOMP_SPINCOUNT", "20000")
    args = list(sys.argv[1:] if arguments is None else arguments)
    try:
        with own_process():
            return _dispatch(args)
    except UserError as error:
        return _refuse(str(error), quiet=not _is_rank_zero("LOCAL_RANK"))  # one process per machine
    except KeyboardInterrupt as stop:
        if _is_rank_zero("RANK"):
            print(printable(str(stop)) or "Stopped.", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader closed the pipe, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception as error:
        if (sentence := _explain(error, args)) is None:
            raise
        return _refuse(sentence)


def _refuse(sentence: str, *, quiet: bool = False) -> int:
    """Print what the user can fix, also in the report of torchrun, which may end a process before it prints."""
    if path := os.environ.get("TORCHELASTIC_ERROR_FILE"):
        with suppress(OSError):
            Path(path).write_text(json.dumps({"message": sentence, "timestamp": int(time.time())}), encoding="utf-8")
    if not quiet:
        print(f"scfs: {printable(sentence)}", file=sys.stderr)
    return 2


def _explain(error: Exception, args: list[str]) -> str | None:
    """The sentence about an error of the machine that the user can fix; None for any other."""
    if isinstance(error, OSError) and (sentence := fixable(error)) is not None:
        return sentence
    if (sentence := out_of_shared_memory(error)) is not None:
        return sentence
    if (problem := out_of_memory(error)) is None:
        return None
    if not {"pretrain", "ablate"} & {*args}:
        return f"{problem}; lower the batch size, the size of the images or the number of workers."
    return (
        f"{problem}; set run.gradient_checkpointing = true, raise optim.accumulate, or lower optim.batch_size, the "
        "sizes and number of views, method.out_dim or data.workers."
    )


def _dispatch(args: list[str]) -> int:
    first = next((i for i, arg in enumerate(args) if arg not in VERBOSITY), len(args))
    last = args.index("--") if "--" in args else len(args)
    args = [*args[first:last], *args[:first], *args[last:]]
    if not args or args[0] in (*HELP, *VERBOSITY):
        print(f"{usage(COMMANDS.values())}\n{NOTES}", end="")
        return 0 if args and args[0] in HELP else 2
    if args[0] in VERSION:
        print(f"scfs {__version__}")
        return 0
    for length in (1, 2):  # words of a command's name
        if (command := COMMANDS.get(" ".join(args[:length]))) is not None:
            _run(command, args[length:])
            return 0
    return _group(args)


def usage(commands: Iterable[Command]) -> str:
    """Every command with its arguments, and what it does."""
    rows = "".join(f"  {command.usage}\n      {command.about}\n" for command in commands)
    return f"usage: scfs COMMAND ...\n\n{rows}"


def _group(args: list[str]) -> int:
    """Help for commands of two words, such as `scfs bench`; otherwise the error for an unknown command."""
    rows = [command for name, command in COMMANDS.items() if name.startswith(f"{args[0]} ")]
    if rows and any(arg in HELP for arg in args):
        print(usage(rows).replace("COMMAND", f"{args[0]} {'|'.join(row.name.split()[1] for row in rows)}", 1), end="")
        return 0
    if rows:
        names = ", ".join(row.name for row in rows)
        raise UserError(f"scfs {args[0]} needs a subcommand; choose one of {names}.")
    known = {name.split()[0]: None for name in COMMANDS}
    nearest = difflib.get_close_matches(args[0], known, n=1)
    hint = f"Did you mean '{nearest[0]}'?" if nearest else f"Choose one of {', '.join(known)}."
    raise UserError(f"Unknown command '{args[0]}'. {hint}")


def show_help(command: list[str], *, console: "Console") -> None:
    """The help of a command, or of all: the `scfs help` command."""
    del console
    _dispatch([*command, "--help"])


def _run(command: Command, args: list[str]) -> None:
    """Parse the arguments of a command, check its settings and call its job; or print its help."""
    from scfs.console import terminal_console
    from scfs.flags import CommandParser
    from scfs.recipe import changes

    models = [_load(path) for path in (command.settings, command.recipe_settings) if path]
    parsed = CommandParser(command, *(model() for model in models)).read(args)
    if parsed.switches.pop("help"):
        print(printable(_help(command, models, parsed)), end="")
        return
    verbosity = {name: parsed.switches.pop(name) for name in ("verbose", "quiet")}
    arguments, keywords = _bind(command, parsed), dict[str, Any](parsed.switches)
    recipe = _recipe(command, arguments, parsed)
    positional = _job_arguments(command, models, arguments, recipe, parsed)
    if command.named and recipe is not None:
        keywords |= {"name": recipe.name, "changes": changes(positional[-1], recipe.values, parsed.flags)}
    with terminal_console(**verbosity) as console:
        if recipe is not None and recipe.note:
            console.print(recipe.note)
        _load(command.job)(*positional, **keywords, console=console)


def _help(command: Command, models: list[Any], parsed: "Parsed") -> str:
    """The help of a command, with the values of the recipe if one is given."""
    from scfs.flags import CommandParser
    from scfs.recipe import check

    arguments = _bind(command, parsed, complete=False)
    given = any(argument.recipe and value is not None for argument, value in arguments.items())
    recipe = _recipe(command, arguments, parsed) if given else None
    values_of = [recipe.values if recipe is not None else {}, {}]
    settings = [check(model, values) for model, values in zip(models, values_of, strict=False)]
    return CommandParser(command, *settings).format_help()


def _job_arguments(
    command: Command, models: list[Any], arguments: dict[Argument, Any], recipe: "Recipe | None", parsed: "Parsed"
) -> list[Any]:
    """The positional arguments of a job: its targets, then its settings."""
    from scfs.recipe import check
    from scfs.recipes.catalogue import read_recipe

    if not models:
        return [*arguments.values()]
    if not command.recipe_settings:
        settings = check(models[0], recipe.values if recipe is not None else {}, parsed.flags)
        return [*(value for argument, value in arguments.items() if not argument.recipe), settings]
    own = {name: value for name, value in parsed.flags.items() if "." not in name}
    changes = {name: value for name, value in parsed.flags.items() if "." in name}  # of the recipes
    settings, positional = check(models[0], {}, own), []
    for argument, value in arguments.items():
        recipes = [read_recipe(name, argument.recipe).values for name in value] if argument.recipe else []
        positional.append([check(models[1], values, changes) for values in recipes] if argument.recipe else value)
    return [*positional, settings]


def _bind(command: Command, parsed: "Parsed", *, complete: bool = True) -> dict[Argument, Any]:
    """The value of each positional argument; required ones must be given, unless only help is requested."""
    remaining, values = list(parsed.targets), {}
    for argument in command.arguments:
        given = remaining if argument.many else remaining[:1]
        remaining = remaining[len(given) :]
        if complete and not given and not argument.optional:
            raise _missing(command, argument, parsed)
        for word in given if complete else []:
            if not word:  # as of a shell variable that is not set
                raise UserError(f"{argument.name} is empty; give {argument.about}.")
            if argument.choices and word not in argument.choices:
                raise UserError(f"{argument.name} cannot be '{word}'; choose one of {', '.join(argument.choices)}.")
        found: list[Any] = [Path(word) for word in given] if argument.is_path else given
        values[argument] = found if argument.many else found[0] if found else None
    if remaining and complete:
        raise UserError(f"Unexpected '{remaining[0]}'; usage: {command.usage}.")
    return values


def _missing(command: Command, argument: Argument, parsed: "Parsed") -> UserError:
    if parsed.lists:
        return UserError(
            f"scfs {command.name} needs {argument.name}, and --{parsed.lists[-1]} takes every value after it; give "
            f"{argument.name} first, or after --."
        )
    return UserError(f"scfs {command.name} needs {argument.about}; usage: {command.usage}.")


def _recipe(command: Command, arguments: dict[Argument, Any], parsed: "Parsed") -> "Recipe | None":
    """The recipe that gives a command its settings, if any; flags override it."""
    from scfs.recipes.catalogue import read_recipe, starting_point

    for argument, target in arguments.items() if not command.recipe_settings else []:
        if argument.recipe == "pretrain":
            return starting_point(target, parsed.flags, resume=parsed.switches["resume"])
        if argument.recipe and target is not None:
            return read_recipe(target, argument.recipe)
    return None


def _load(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


def _is_rank_zero(rank: str) -> bool:
    return os.environ.get(rank, "0") == "0"
