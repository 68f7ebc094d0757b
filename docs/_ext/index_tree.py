"""Builds the navigation from the links of index.md: the page reads well on GitHub, and nothing is listed twice."""

import re
from typing import Any

from sphinx.application import Sphinx

SECTION = re.compile(r"^## (?P<caption>.+)\n(?P<body>(?:(?!## ).*\n?)*)", re.MULTILINE)
PAGE = re.compile(r"^- \[(?P<title>[^\]]+)\]\((?P<page>[\w/]+)\.(md|ipynb)\)", re.MULTILINE)


def toctrees(index: str) -> str:
    """A hidden toctree for each section of the index, with the pages that its list links to."""
    trees = []
    for section in SECTION.finditer(index):
        pages = "\n".join(f"{link['title']} <{link['page']}>" for link in PAGE.finditer(section["body"]))
        if pages:
            trees.append(f"```{{toctree}}\n:hidden:\n:caption: {section['caption']}\n\n{pages}\n```\n")
    return "\n".join(trees)


def _append(app: Sphinx, name: str, source: list[str]) -> None:
    if name == app.config.root_doc:
        source[0] += f"\n{toctrees(source[0])}"


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.connect("source-read", _append)
    return {"parallel_read_safe": True}
