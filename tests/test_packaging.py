"""The wheel is complete: installed outside the repository it prints help, trains and has type hints."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
import venv
import zipfile
from pathlib import Path

import pytest
from conftest import REPO

from scfs import __version__

MAX_HELP = 1 / 3  # of the time to import torch
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PIP_"))}


def run(*words: object, cwd: Path) -> str:
    """What a command prints; it must succeed."""
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, cwd=cwd, env=ENVIRONMENT)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def distributions(tmp_path_factory) -> Path:
    """A folder with the sdist and the wheel made from it, without network: the repository is not changed."""
    folder = tmp_path_factory.mktemp("distributions")
    sources = folder / "sources"
    shutil.copytree(REPO / "scfs", sources / "scfs", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPO / name, sources)
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, sources, cwd=folder)
    return folder


@pytest.fixture(scope="module")
def wheel(distributions) -> Path:
    (built,) = distributions.glob("scfs-*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    """A virtual environment with the wheel, which borrows torch and other packages from this one, but not its scfs."""
    home = tmp_path_factory.mktemp("installed") / "venv"
    venv.EnvBuilder(symlinks=True).create(home)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", home / "bin" / "python")
    run(*pip, "install", "--quiet", "--no-index", "--no-deps", wheel, cwd=home)
    (site_packages,) = home.glob("lib/python*/site-packages")
    # A path in a .pth file comes last, and .pth files there, such as that of an editable scfs, are not read.
    (site_packages / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return home


def test_the_wheel_has_every_file_of_the_package_and_no_other(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        about = {name.partition("/")[2] for name in archive.namelist() if ".dist-info/" in name}
    files = {path.relative_to(REPO).as_posix() for path in (REPO / "scfs").rglob("*") if path.is_file()}
    assert names == {name for name in files if "__pycache__" not in name}
    assert "scfs/py.typed" in names
    assert {"METADATA", "entry_points.txt", "licenses/LICENSE"} <= about


def test_what_is_published_is_valid(distributions):
    files = [distributions / f"scfs-{__version__}-py3-none-any.whl", distributions / f"scfs-{__version__}.tar.gz"]
    assert run(sys.executable, "-m", "twine", "check", "--strict", *files, cwd=distributions).count("PASSED") == 2


def test_the_changelog_has_a_section_for_what_is_next():
    sections = re.findall(r"^## \[(.+?)\]", (REPO / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sections[0] in ("Unreleased", __version__)


def test_the_installed_package_is_not_the_repositorys(installed, tmp_path):
    code = "import scfs, importlib.metadata as m; print(scfs.__file__, scfs.__version__, m.version('scfs'))"
    file, version, declared = run(installed / "bin" / "python", "-c", code, cwd=tmp_path).split()
    assert Path(file).is_relative_to(installed)
    assert (Path(file).parent / "py.typed").exists()
    assert version == declared


def test_the_installed_command_prints_help_and_trains(installed, tiny_recipe, tmp_path):
    assert run(installed / "bin" / "scfs", "--help", cwd=tmp_path).startswith("usage: scfs")
    assert run(installed / "bin" / "scfs", "recipes", "transfer", cwd=tmp_path).startswith("# Transfer by fine-tuning")
    run(installed / "bin" / "scfs", "pretrain", tiny_recipe, "--optim.epochs", 1, cwd=tmp_path)
    assert (tmp_path / "runs" / "tiny" / "last.pt").exists()


def test_help_is_quick(tmp_path):
    """As a fraction of the time to import torch, measured in turns: a machine may be slow or busy."""
    words = {"help": ("-m", "scfs", "--help"), "torch": ("-c", "import torch")}
    best = dict.fromkeys(words, float("inf"))
    for _ in range(3):
        for name, command in words.items():
            start = time.perf_counter()
            run(sys.executable, *command, cwd=tmp_path)
            best[name] = min(best[name], time.perf_counter() - start)
    assert best["help"] <= MAX_HELP * best["torch"], best


def test_the_citation_names_this_version():
    assert f"\nversion: {__version__}\n" in (REPO / "CITATION.cff").read_text(encoding="utf-8")
