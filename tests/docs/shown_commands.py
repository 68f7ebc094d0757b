"""The commands that README.md and docs/ show, in code blocks and in the text."""

import re
import shlex
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import NamedTuple

from conftest import REPO
from markdown_it import MarkdownIt

PAGES = [REPO / "README.md", *sorted((REPO / "docs").rglob("*.md"))]
BRACKETS = str.maketrans("", "", "[]")  # [--cached]: optional


class Shown(NamedTuple):
    """The words after `scfs`, and where they are."""

    where: str
    words: list[str]
    in_text: bool


def shown_commands(page: Path) -> Iterator[Shown]:
    """Every command of a page."""
    for token in MarkdownIt().parse(page.read_text(encoding="utf-8")):
        where = f"{page.relative_to(REPO)}:{token.map[0] + 1}" if token.map else ""
        if token.type in ("fence", "code_block"):
            lines = token.content.replace("\\\n", " ").splitlines()
            typed = [line for line in lines if line.startswith("$ ") or token.info != "console"]
            commands = [words for line in typed if (words := command_words(line))]
            yield from (Shown(where, words, False) for each in commands for words in alternatives(each))
        for part in token.children or []:
            if part.type == "code_inline" and (words := command_words(part.content)):
                yield Shown(where, words, True)


def command_words(line: str) -> list[str]:
    """The words after `scfs` of a line of a shell; empty if it starts something else."""
    line = re.sub(r" > \S+$", "", line.strip().removeprefix("$ "))
    starts = re.match(r"(?:\.venv/bin/)?scfs |(?:\w+=\S+ )*torchrun .*? -m scfs |ssh .*? scfs ", f"{line} ")
    if starts is None:
        return []
    words = shlex.split(f"{line} "[starts.end() :].translate(BRACKETS), comments=True)
    return [word for word in words if word != "..."]


def alternatives(words: list[str]) -> list[list[str]]:
    """One command for each of `modes|layers`."""
    return [list(each) for each in product(*(word.split("|") for word in words))]
