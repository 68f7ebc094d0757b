"""What only some commands need is installed by extras, and everything else works without them."""

import re
import subprocess
import sys
import tomllib

import pytest
from conftest import REPO

from scfs.commands import COMMANDS
from scfs.errors import UserError
from scfs.extras import EXTRAS, check_extra

PROJECT = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["project"]
WITHOUT_EXTRAS = f"""
import importlib, sys
for name in {sorted({package for packages in EXTRAS.values() for package in packages})}:
    sys.modules[name] = None
import scfs
for job in {[command.job for command in COMMANDS.values() if command.job]}:
    module, _, name = job.partition(":")
    getattr(importlib.import_module(module), name)
"""


def packages(requirements):
    return {re.split(r"[<>=\[]", requirement)[0].replace("-", "_") for requirement in requirements}


def test_the_extras_are_those_of_the_project():
    declared = {name: packages(of) for name, of in PROJECT["optional-dependencies"].items() if name != "dev"}
    assert declared == {name: set(of) for name, of in EXTRAS.items()}
    assert not packages(PROJECT["dependencies"]) & set.union(*declared.values())


def test_every_command_can_be_imported_without_them():
    subprocess.run([sys.executable, "-c", WITHOUT_EXTRAS], check=True)


@pytest.mark.parametrize("extra", EXTRAS)
def test_a_missing_one_is_named(monkeypatch, extra):
    monkeypatch.setattr("scfs.extras.find_spec", lambda _: None)
    with pytest.raises(UserError, match=rf"^x needs {' and '.join(EXTRAS[extra])}: pip install 'scfs\[{extra}\]'.$"):
        check_extra(extra, "x")
