import difflib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from scfs.errors import UserError
from scfs.recipe import read_toml
from scfs.runs.auto_choices import with_auto_restored

HERE = Path(__file__).parent
FOLDERS = {"pretrain": HERE, "finetune": HERE / "finetune", "detect": HERE / "detect"}  # by command
SETTINGS = "settings.toml"  # marks a run folder
DEFAULT = "own_photos"
FIELDS = ("command", "hardware", "time", "result")


class Recipe(NamedTuple):
    """Settings that flags override, and the name they give to a run. `note` states what was assumed, if anything."""

    name: str
    values: dict[str, Any]
    note: str = ""


def recipe_names(kind: str) -> list[str]:
    """The recipes that come with the package."""
    return sorted(path.stem for path in FOLDERS[kind].glob("*.toml"))


def recipe_path(recipe: str, *kinds: str) -> Path:
    """The file of a recipe given by name or path."""
    name, names = recipe.replace("-", "_"), {name: kind for kind in kinds for name in recipe_names(kind)}
    if name in names:
        return FOLDERS[names[name]] / f"{name}.toml"
    path = Path(recipe).expanduser()
    if path.suffix == ".toml" or path.is_file():
        return path
    if path.is_dir():
        raise UserError(f"{recipe} is a folder; give a recipe's name or .toml file, such as the {SETTINGS} of a run.")
    nearest = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(nearest)}?" if nearest else f"choose one of {', '.join(names)}."
    raise UserError(f"There is no recipe, run or folder '{recipe}'; {hint}")


def read_recipe(recipe: str, kind: str) -> Recipe:
    """A recipe given by name or path."""
    path = recipe_path(recipe, kind)
    return Recipe(path.stem, read_toml(path))


def starting_point(target: str | None, flags: Mapping[str, Any], *, resume: bool = False) -> Recipe:
    """The settings that pre-training starts from: those of a recipe, of a run, or own_photos for a folder of photos."""
    if target is None:
        if "data.source" not in flags:
            raise UserError(
                "scfs pretrain needs a recipe, such as quickstart (scfs recipes lists them), a run folder or a folder "
                "of photos."
            )
        values = read_recipe(DEFAULT, "pretrain").values
        return Recipe(DEFAULT, values, f"No recipe was given: the settings are those of {DEFAULT}.")
    folder = Path(target).expanduser()
    if (folder / SETTINGS).is_file():
        _refuse_other_folder(folder, flags, resume=resume)
        return _from_run(folder, resume=resume)
    if not folder.is_dir() or target in recipe_names("pretrain"):
        return read_recipe(target, "pretrain")
    if "data.source" in flags:
        raise UserError(f"{target} and --data.source {flags['data.source']} both name images; give one of them.")
    values = read_recipe(DEFAULT, "pretrain").values
    values["data"] = {**values.get("data", {}), "source": str(folder)}
    return Recipe(DEFAULT, values, f"{target} is a folder of images: the settings are those of {DEFAULT}.")


def _refuse_other_folder(folder: Path, flags: Mapping[str, Any], *, resume: bool) -> None:
    """A run resumes in its own folder: in another there is no checkpoint, and it would start again."""
    other = flags.get("run.folder")
    if resume and other is not None and Path(other).expanduser().resolve() != folder.resolve():
        raise UserError(
            f"--resume continues the run in {folder}, and --run.folder is {other}; omit --run.folder, or omit --resume "
            "to start a new run there."
        )


def _from_run(folder: Path, *, resume: bool) -> Recipe:
    """The settings of a run; for a new run, what `auto` chose is `auto` again."""
    values = read_toml(folder / SETTINGS)
    if "method" not in values:
        raise UserError(
            f"{folder} is not a pre-training run: its {SETTINGS} is that of another command. To start from its "
            f"weights, add --init {folder} to a recipe or a folder of photos."
        )
    if not resume:
        values = with_auto_restored(values, folder)
    values["run"] = {**values.get("run", {}), "folder": str(folder) if resume else "auto"}
    note = "" if resume else f"A new run with the settings of {folder}; --resume continues that run."
    return Recipe(folder.resolve().name, values, note)


class Header(NamedTuple):
    """The comment at the top of a recipe: its first line, and the lines of each field."""

    title: str
    fields: dict[str, list[str]]


def read_header(path: Path) -> Header:
    """Parse the header of a recipe."""
    lines = path.read_text(encoding="utf-8").split("\n\n")[0].splitlines()
    fields: dict[str, list[str]] = {}
    name = ""
    for line in lines:
        if match := re.fullmatch(rf"# ({'|'.join(FIELDS)}) +(\S.*)", line):
            name = match[1]
            fields[name] = [match[2]]
        elif name and (match := re.fullmatch(r"# {11}(\S.*)", line)):
            fields[name].append(match[1])
        else:
            name = ""
    return Header(lines[0].removeprefix("# "), fields)


def show(name: str | None, *, console: Console) -> None:
    """List the recipes, or print one: the `scfs recipes` command."""
    if name is not None:
        path = recipe_path(name, *FOLDERS)
        read_toml(path)  # raises a UserError if it is not valid
        _print(console, path.read_text(encoding="utf-8").rstrip("\n"))
        return
    for kind, folder in FOLDERS.items():
        _print(console, f"For scfs {kind}:\n")
        for recipe in recipe_names(kind):
            _print(console, _entry(recipe, read_header(folder / f"{recipe}.toml")))
    _print(console, "To edit one: scfs recipes NAME > mine.toml; scfs pretrain mine.toml.")


def _entry(name: str, header: Header) -> str:
    fields = {field: lines for field, lines in header.fields.items() if field != "result"}
    rows = [
        f"    {field if first else '':9} {line}"
        for field, lines in fields.items()
        for first, line in ((i == 0, line) for i, line in enumerate(lines))
    ]
    return "\n".join([name, f"    {header.title}", *rows, ""])


def _print(console: Console, text: str) -> None:
    print(text, file=console.file)  # unformatted: it may be redirected to a file
