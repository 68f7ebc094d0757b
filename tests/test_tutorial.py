"""Every command of docs/tutorial.md works, in order, and prints what the page shows of its output."""

import doctest
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from conftest import REPO
from PIL import Image

from scfs.data.scenes import render_scene

PAGE = (REPO / "docs" / "tutorial.md").read_text(encoding="utf-8")
CLASSES = (
    *("Abyssinian", "Bombay", "Persian", "Siamese", "Sphynx"),
    *("beagle", "keeshond", "pug", "saint_bernard", "samoyed"),
)
# Flags that make a command of the page quick.
QUICK = {
    "pretrain": "--optim.epochs 1 --data.workers 0 --run.threads 1",
    **dict.fromkeys(("knn", "predict", "embed"), "--workers 0"),
    **dict.fromkeys(("linear", "finetune"), "--workers 0 --epochs 1"),
}
WALK = {"pretrain", "report", "knn", "linear", "predict", "finetune", "compare", "embed", "export"}


class Step(NamedTuple):
    """A command and the lines that the page shows of its output, or a session of Python."""

    command: str
    lines: list[str]
    session: str = ""


def steps() -> Iterator[Step]:
    """What the page's blocks do, in order."""
    for kind, block in re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL):
        if kind == "python":
            yield Step("", [], block)
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:] if kind == "console" else []:
            command, *lines = part.splitlines()
            yield Step(command, lines)


def stable(line: str) -> str:
    """A line without what depends on the photos and the machine: numbers, classes, ties and the widths of columns."""
    line = re.sub("|".join(CLASSES), "CLASS", line)
    line = re.sub(r"[-+]?\d[\d.:]*", "#", line)
    return re.sub(r"[\s~]+", " ", re.sub("[━─]+", "─", line)).strip()


def write_photos(folder: Path, first: int, count: int) -> None:
    folder.mkdir(parents=True)
    for number in range(first, first + count):
        image = render_scene(0, "train", number, size=64).image
        Image.fromarray(image).save(folder / f"IMG_{number}.jpg")


@pytest.fixture
def _photos(tmp_path, monkeypatch):
    """The folders of the page, with scenes instead of pets."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    write_photos(Path("photos"), 1000, 140)  # enough for a batch of 128
    write_photos(Path("new"), 2000, 4)
    for number, name in enumerate(CLASSES):
        write_photos(Path("labelled/train") / name, 3000 + 10 * number, 3)
        write_photos(Path("labelled/val") / name, 4000 + 10 * number, 1)


@pytest.mark.usefixtures("_photos")
def test_the_page(scfs):
    used = set()
    for command, lines, session in steps():
        if session:
            test = doctest.DocTestParser().get_doctest(session, {}, "tutorial.md", None, 0)
            assert test.examples
            assert doctest.DocTestRunner().run(test).failed == 0
        name, *words = shlex.split(command) or [""]
        if name != "scfs":  # installing
            continue
        code, out, err = scfs(*words, *shlex.split(QUICK.get(words[0], "")))
        assert code == 0, f"{command}: {err}"
        printed = iter([stable(line) for line in out.splitlines()])
        for line in lines:
            assert line == "..." or stable(line) in printed, f"{command} did not print {line!r}, but\n{out}"
        used.add(words[0])
    assert used >= WALK


def test_the_readme_links_the_page():
    assert "(docs/tutorial.md)" in (REPO / "README.md").read_text(encoding="utf-8")
