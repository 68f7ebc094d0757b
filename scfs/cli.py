import os
import re
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from scfs import __version__
from scfs.errors import OUT_OF_REACH, UserError

if TYPE_CHECKING:
    from rich.console import Console

# Everything else is imported when a command needs it: help and mistakes do not wait for torch.

USAGE = """\
usage: scfs COMMAND ...

  scfs pretrain RECIPE [--section.setting value ...] [--init WEIGHTS] [--resume | --dry-run]
      pre-train a backbone; RECIPE is a TOML file, or a run folder to go on with or to repeat
  scfs knn RUN_OR_WEIGHTS [--data SOURCE] [--setting value ...]
      score a backbone by its nearest neighbours; --layers all: and each of its search layers
  scfs linear RUN_OR_WEIGHTS [--data SOURCE] [--cached true] [--setting value ...]
      score a backbone by linear classifiers on its frozen features, and keep the best
  scfs finetune RUN_OR_WEIGHTS [RECIPE] [--data SOURCE] [--fraction 0.01] [--from scratch] [--setting value ...]
      score a backbone by training all of it with labels, or with a few, and keep the network
  scfs predict RUN SOURCE [OUT.csv]
      name the class of each image with what linear or finetune kept
  scfs ablate modes|layers|locals|backbones RECIPE [--setting value ...] [--section.setting value ...]
      train and score the rows of one of the paper's tables
  scfs compare RUN ...
      lay runs side by side by what they scored
  scfs embed RUN_OR_WEIGHTS SOURCE [OUT.npy | OUT.parquet] [--query IMAGE --nearest K]
      write the features of every image, or print the images most like one
  scfs export RUN_OR_WEIGHTS OUT.safetensors | OUT.pth [--network student]
      write a backbone for timm or for torchvision
  scfs report RUN
      pictures and a page of what a run learned
  scfs bench step|data|memory|growth [--setting value ...]
      measure what training costs here, side by side with its peers

RUN_OR_WEIGHTS is a run folder, a checkpoint, an exported file, a file of weights named as timm, torchvision, DINO,
MoCo or the released SCFS code do, or random:NAME (a timm model with random weights).
scfs COMMAND --help shows the settings with their values; for pretrain, after the RECIPE, those of the recipe.
"""
HELP = ("-h", "--help")


class Words(NamedTuple):
    """The words of a command line after the command: what comes before the first flag, and the flags."""

    targets: list[str]
    flags: list[str]

    @property
    def ask_help(self) -> bool:
        return any(word in HELP for word in (*self.targets, *self.flags))


def main(arguments: Sequence[str] | None = None) -> int:
    """The `scfs` command. Returns the exit code: 2 for what the user can fix, 130 for a stop."""
    # How long a step's threads spin while they wait for each other, read when torch is imported. Far below its default,
    # which starves whatever else runs on the same cores; but sleeping at once costs a step a fifth of its time.
    os.environ.setdefault("GOMP_SPINCOUNT", "20000")
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        return _dispatch(words)
    except UserError as error:
        if _is_rank_zero("LOCAL_RANK"):  # of several processes, one on each machine
            print(f"scfs: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as stop:
        if _is_rank_zero("RANK"):
            print(str(stop) or "Stopped.", file=sys.stderr)
        return 130
    except BrokenPipeError:  # whoever reads has seen enough, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        if error.errno not in OUT_OF_REACH:
            raise
        print(
            f"scfs: Cannot read or write {error.filename or 'a file'}: {error.strerror}; see to it first.",
            file=sys.stderr,
        )
        return 2


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in HELP:
        print(USAGE, end="")
        return 0 if words else 2
    if words[0] == "--version":
        print(f"scfs {__version__}")
        return 0
    if words[0] not in COMMANDS:
        raise UserError(f"Unknown command '{words[0]}'; there are {', '.join(COMMANDS)}.")
    rest = words[1:]
    first_flag = next((i for i, word in enumerate(rest) if word.startswith("-")), len(rest))
    COMMANDS[words[0]](Words(rest[:first_flag], rest[first_flag:]))
    return 0


def _pretrain(words: Words) -> None:
    from scfs.config import Config
    from scfs.recipe import check, help_text, read_flags, read_toml

    resume, dry_run = ("--resume" in words.flags, "--dry-run" in words.flags)
    flags = ["--backbone.init" if word == "--init" else word for word in words.flags]
    flags = [word for word in flags if word not in ("--resume", "--dry-run", *HELP)]
    target = Path(words.targets[0]) if words.targets else None
    from_run = target is not None and target.is_dir()
    values = {} if target is None else read_toml(target / "settings.toml" if from_run else target)
    if from_run:
        run = dict(values.get("run", {}))
        run["folder"] = str(target) if resume else "auto"
        values["run"] = run
    if words.ask_help:
        prog = f"scfs pretrain {target or 'RECIPE'}"
        print(help_text(check(Config, values), prog, "Pre-train a backbone on unlabelled images."))
        return
    if target is None:
        raise UserError("scfs pretrain needs a recipe, such as recipes/quickstart.toml, or a run folder.")
    if len(words.targets) > 1:
        raise UserError(f"Unexpected '{words.targets[1]}'; settings are given as --section.setting value.")
    if resume and dry_run:
        raise UserError("--dry-run tries a new run; leave --resume away.")
    config = check(Config, values, read_flags(flags))
    if dry_run:
        from scfs.pretrain.dry_run import preview

        preview(config, name=target.stem, console=_console())
        return

    from scfs.pretrain.job import pretrain

    pretrain(config, name=target.stem, resume=resume, console=_console())


def _knn(words: Words) -> None:
    from scfs.evaluate.knn.settings import Knn

    if (settings := _settings(Knn, words, "knn RUN_OR_WEIGHTS", "Score a backbone by its nearest neighbours.")) is None:
        return
    [target] = _targets(words, "a run folder, a file of weights, or random:NAME")

    from scfs.evaluate.knn.job import knn

    knn(target, settings, _console())


def _linear(words: Words) -> None:
    from scfs.evaluate.linear.settings import Linear

    about = "Score a backbone by linear classifiers on its frozen features."
    if (settings := _settings(Linear, words, "linear RUN_OR_WEIGHTS", about)) is None:
        return
    [target] = _targets(words, "a run folder, a file of weights, or random:NAME")

    from scfs.evaluate.linear.job import linear

    linear(target, settings, _console())


def _finetune(words: Words) -> None:
    from scfs.evaluate.finetune.settings import Finetune
    from scfs.recipe import read_toml

    about = "Score a backbone by training all of it with labels."
    flags = [re.sub(r"^--from(?==|$)", "--start", word) for word in words.flags]
    recipe = read_toml(Path(words.targets[1])) if len(words.targets) == 2 else {}
    usage = "finetune RUN_OR_WEIGHTS [RECIPE]"
    if (settings := _settings(Finetune, Words(words.targets, flags), usage, about, recipe)) is None:
        return
    target, *_ = _targets(words, "a run folder, a file of weights, or random:NAME", optional=1)

    from scfs.evaluate.finetune.job import finetune

    finetune(target, settings, _console())


def _predict(words: Words) -> None:
    from scfs.evaluate.settings import Predict

    about = "Name the class of each image with a run's trained probe."
    if (settings := _settings(Predict, words, "predict RUN SOURCE [OUT.csv]", about)) is None:
        return
    run, source, *out = _targets(words, "a run", "images", optional=1)

    from scfs.evaluate.predict import predict

    predict(run, source, Path(out[0]) if out else None, settings, _console())


def _ablate(words: Words) -> None:
    from scfs.ablate.settings import Ablate
    from scfs.config import Config
    from scfs.recipe import check, read_flags, read_toml

    tables = ("modes", "layers", "locals", "backbones")
    about = "Train and score the rows of one of the paper's tables."
    if words.ask_help:
        _settings(Ablate, words, f"ablate {'|'.join(tables)} RECIPE", about)
        return
    what, *recipes = _targets(words, "the table", "a recipe", optional=len(words.targets))
    if what not in tables:
        raise UserError(f"There is no table '{what}'; the paper has {', '.join(tables)}.")
    flags = read_flags(words.flags)
    settings = check(Ablate, {}, {name: value for name, value in flags.items() if "." not in name})
    changes = {name: value for name, value in flags.items() if "." in name}
    configs = [check(Config, read_toml(Path(recipe)), changes) for recipe in recipes]

    from scfs.ablate.job import ablate

    ablate(what, configs, settings, _console())


def _compare(words: Words) -> None:
    if _plain_help(words, "compare RUN ...", "Lay runs side by side by what they scored."):
        return
    if words.flags or not words.targets:
        raise UserError("scfs compare takes run folders and no settings: scfs compare RUN RUN ...")

    from scfs.evaluate.compare import compare

    compare(words.targets, _console())


def _embed(words: Words) -> None:
    from scfs.evaluate.settings import Embed

    about = "Features of images, or the images most like one."
    if (settings := _settings(Embed, words, "embed RUN_OR_WEIGHTS SOURCE [OUT]", about)) is None:
        return
    target, source, *out = _targets(words, "a run or weights", "images", optional=1)

    from scfs.evaluate.embed import embed

    embed(target, source, Path(out[0]) if out else None, settings, _console())


def _export(words: Words) -> None:
    from scfs.evaluate.settings import Export

    about = "A backbone for timm (.safetensors) or torchvision (.pth)."
    if (settings := _settings(Export, words, "export RUN_OR_WEIGHTS OUT", about)) is None:
        return
    target, out = _targets(words, "a run or weights", "a file to write")

    from scfs.export import export

    print(export(target, Path(out), network=settings.network, name=settings.backbone or None))


def _report(words: Words) -> None:
    if _plain_help(words, "report RUN", "Pictures and a page of what a run learned."):
        return
    if words.flags:
        raise UserError("scfs report takes one run folder and no settings: scfs report RUN.")
    [run] = _targets(words, "a run folder")

    from scfs.visualize.report import report

    report(Path(run), _console())


def _bench(words: Words) -> None:
    from scfs.bench import settings as kinds

    benches: dict[str, tuple[Any, str]] = {
        "step": (kinds.BenchStep, "Time training steps and their peers side by side."),
        "data": (kinds.BenchData, "Time the view paths side by side."),
        "memory": (
            kinds.BenchMemory,
            "Measure the memory and the time of training steps, each in a process of its own.",
        ),
        "growth": (kinds.BenchGrowth, "Time training steps against views, batch and resolution."),
    }
    if not words.targets and _plain_help(words, f"bench {'|'.join(benches)}", "Measure what training costs here."):
        return
    if len(words.targets) != 1 or words.targets[0] not in benches:
        raise UserError(f"scfs bench needs to know what to measure: scfs bench {'|'.join(benches)}.")
    [what] = words.targets
    model, about = benches[what]
    if (settings := _settings(model, words, f"bench {what}", about)) is not None:
        import_module("scfs.bench.page").check_page(settings.write)
        job = import_module(f"scfs.bench.{what}")
        getattr(job, f"bench_{what}")(settings, _console())


COMMANDS: dict[str, Callable[[Words], None]] = {
    "pretrain": _pretrain,
    "knn": _knn,
    "linear": _linear,
    "finetune": _finetune,
    "predict": _predict,
    "ablate": _ablate,
    "compare": _compare,
    "embed": _embed,
    "export": _export,
    "report": _report,
    "bench": _bench,
}


def _settings(model: Any, words: Words, usage: str, about: str, recipe: dict[str, Any] | None = None) -> Any:
    """The settings that a recipe and the flags give, or None if help was asked for and given."""
    from scfs.recipe import check, help_text, read_flags

    if words.ask_help:
        print(help_text(check(model, recipe or {}), f"scfs {usage}", about))
        return None
    return check(model, recipe or {}, read_flags(words.flags))


def _plain_help(words: Words, usage: str, about: str) -> bool:
    """Whether help was asked for and given, of a command that has no settings."""
    if words.ask_help:
        print(f"usage: scfs {usage}\n\n{about}")
    return words.ask_help


def _targets(words: Words, *wanted: str, optional: int = 0) -> list[str]:
    if not len(wanted) <= len(words.targets) <= len(wanted) + optional:
        given = " ".join(words.targets) or "nothing"
        raise UserError(f"Give {' and '.join(wanted)} before any flags, not {given}; see scfs --help.")
    return words.targets


def _console() -> "Console":
    """Of several processes only the first one speaks."""
    from rich.console import Console

    return Console(quiet=not _is_rank_zero("RANK"))


def _is_rank_zero(rank: str) -> bool:
    return os.environ.get(rank, "0") == "0"
