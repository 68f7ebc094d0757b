import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from scfs import __version__
from scfs.config import Config, Knn
from scfs.errors import UserError
from scfs.recipe import check, help_text, read_flags, read_toml

USAGE = """\
usage: scfs COMMAND ...

  scfs pretrain RECIPE [--section.setting value ...] [--resume]
      pre-train a backbone; RECIPE is a TOML file, or a run folder to go on with or to repeat
  scfs knn RUN_OR_WEIGHTS [--data SOURCE] [--setting value ...]
      score a run folder, a checkpoint, or random:NAME (a timm model with random weights)
  scfs report RUN
      pictures and a page of what a run learned

scfs COMMAND --help shows the settings with their values; for pretrain, after the RECIPE, those of the recipe.
"""
HELP = ("-h", "--help")


def main(arguments: Sequence[str] | None = None) -> int:
    """The `scfs` command. Returns the exit code: 2 for what the user can fix, 130 for a stop."""
    # Threads that wait by spinning starve the loader's processes on the same cores; read when torch is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        return _dispatch(words)
    except UserError as error:
        print(f"scfs: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as stop:
        print(str(stop) or "Stopped.", file=sys.stderr)
        return 130


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in HELP:
        print(USAGE, end="")
        return 0 if words else 2
    if words[0] == "--version":
        print(f"scfs {__version__}")
        return 0
    commands: dict[str, Callable[[list[str]], int]] = {"pretrain": _pretrain, "knn": _knn, "report": _report}
    if words[0] not in commands:
        raise UserError(f"Unknown command '{words[0]}'; there are {', '.join(commands)}.")
    return commands[words[0]](words[1:])


def _pretrain(words: list[str]) -> int:
    resume = "--resume" in words
    words = [word for word in words if word != "--resume"]
    target = Path(words.pop(0)) if words and not words[0].startswith("-") else None
    from_run = target is not None and target.is_dir()
    values = {} if target is None else read_toml(target / "settings.toml" if from_run else target)
    if from_run:
        run = dict(values.get("run", {}))
        run["folder"] = str(target) if resume else "auto"
        values["run"] = run
    if any(word in HELP for word in words):
        prog = f"scfs pretrain {target or 'RECIPE'}"
        print(help_text(check(Config, values), prog, "Pre-train a backbone on unlabelled images."))
        return 0
    if target is None:
        raise UserError("scfs pretrain needs a recipe, such as recipes/quickstart.toml, or a run folder.")
    config = check(Config, values, read_flags(words))
    if resume and config.run.folder == "auto":
        raise UserError("--resume needs to know the run: scfs pretrain RUN_FOLDER --resume, or give --run.folder.")

    from rich.console import Console

    from scfs.pretrain.loop import pretrain

    pretrain(config, name=target.stem, resume=resume, console=Console())
    return 0


def _knn(words: list[str]) -> int:
    if any(word in HELP for word in words):
        print(help_text(Knn(), "scfs knn RUN_OR_WEIGHTS", "Score a backbone by its nearest neighbours."))
        return 0
    if not words or words[0].startswith("-"):
        raise UserError("scfs knn needs a run folder, a checkpoint, or random:NAME.")
    settings = check(Knn, {}, read_flags(words[1:]))

    from rich.console import Console

    from scfs.evaluate.job import knn

    knn(words[0], settings, Console())
    return 0


def _report(words: list[str]) -> int:
    if len(words) != 1 or words[0].startswith("-"):
        raise UserError("scfs report takes one run folder: scfs report RUN.")

    from rich.console import Console

    from scfs.look.report import report

    report(Path(words[0]), Console())
    return 0
