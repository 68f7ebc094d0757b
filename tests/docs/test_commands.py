"""Every command in README.md and docs/ exists, with its flags, its values and its recipes.

The tutorial's are also run (`test_tutorial.py`); the others need data, GPUs or time.
"""

from typing import Any

import pytest
from conftest import REPO
from shown_commands import PAGES, Shown, command_words, shown_commands

from scfs.cli import HELP, VERSION, _bind, _load
from scfs.commands import COMMANDS, Argument
from scfs.errors import UserError
from scfs.flags import CommandParser
from scfs.recipe import check, setting_names
from scfs.recipes.catalogue import FOLDERS, read_recipe, recipe_path

FOLDERS_OF_PHOTOS = {"photos"}  # not recipes


def check_shown(shown: Shown) -> None:
    """Raise a UserError for a command that the command line would refuse before it looks for files."""
    length = next((n for n in (2, 1) if " ".join(shown.words[:n]) in COMMANDS), 0)
    if not length:
        assert shown.words in ([], ["bench"], *([flag] for flag in (*HELP, *VERSION))), shown
        return
    command, args = COMMANDS[" ".join(shown.words[:length])], shown.words[length:]
    models = [_load(path) for path in (command.settings, command.recipe_settings) if path]
    parsed = CommandParser(command, *(model() for model in models)).read(args)
    complete = not shown.in_text and not parsed.switches["help"]
    recipe: dict[str, Any] = {}
    for argument, value in _bind(command, parsed, complete=complete).items():
        for word in filter(None, value if isinstance(value, list) else [value]):
            recipe |= check_word(argument, str(word))
    for model in models:
        flags = {name: parsed.flags[name] for name in setting_names(model) if name in parsed.flags}
        values = recipe if model is models[-1] else {}  # recipes hold the settings of the last
        check(model, values, {name: value for name, value in flags.items() if not str(value).isupper()})


def check_word(argument: Argument, word: str) -> dict[str, Any]:
    """Check a positional argument; the values of a recipe, if it is one."""
    if argument.choices and word not in argument.choices:
        raise UserError(f"{argument.name} cannot be '{word}'.")
    if argument.name == "NAME" and not is_placeholder(word):
        recipe_path(word, *FOLDERS)
    if not argument.recipe or is_placeholder(word) or word in FOLDERS_OF_PHOTOS:
        return {}
    return read_recipe(word, argument.recipe).values


def is_placeholder(word: str) -> bool:
    """FOLDER, path/to/photos or mine.toml."""
    return word.isupper() or "/" in word or word.endswith(".toml")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPO)))
def test_the_commands_of_a_page(page):
    for shown in shown_commands(page):
        try:
            check_shown(shown)
        except UserError as error:
            pytest.fail(f"{shown.where}: scfs {' '.join(shown.words)}: {error}")


def test_commands_are_found():
    shown = [shown for page in PAGES for shown in shown_commands(page)]
    assert len(shown) > 150
    used = {words[0] for _, words, _ in shown if words}
    assert used >= {name.split()[0] for name in COMMANDS} - {"help", "completion"}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("scfs pretrian photos", "pretrian"),
        ("scfs pretrain quickstarted", "no recipe.* 'quickstarted'"),
        ("$ scfs pretrain quickstart --optim.epoch 5", "Did you mean 'optim.epochs'"),
        (".venv/bin/scfs knn RUN --k many", "Setting 'k' cannot be 'many'"),
        ("torchrun --nproc-per-node 2 -m scfs finetune RUN semi_supervised", "no recipe.* 'semi_supervised'"),
        ("scfs ablate colours RECIPE", "cannot be 'colours'"),
        ("scfs embed RUN  # without a source", "needs a folder of images"),
        ("scfs recipes quickstarted > mine.toml", "no recipe.* 'quickstarted'"),
    ],
)
def test_mistakes_are_found(line, message):
    with pytest.raises((UserError, AssertionError), match=message):
        check_shown(Shown("", command_words(line), False))
