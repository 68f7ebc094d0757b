"""Every link of the Markdown files works on GitHub: files and anchors exist, addresses are well-formed."""

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from conftest import REPO
from markdown_it import MarkdownIt

PAGES = [REPO / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")] + sorted(
    (REPO / "docs").rglob("*.md")
)
MENTIONS = ("scfs", "tests", "benchmarks", "faults", "docs", "Makefile", "README.md", "CONTRIBUTING.md", "CHANGELOG.md")
MARKDOWN = MarkdownIt().enable("table")


def links(page: Path) -> Iterator[str]:
    """The targets of the links and pictures of a page."""
    for token in MARKDOWN.parse(page.read_text(encoding="utf-8")):
        for part in token.children or []:
            target = part.attrs.get("href" if part.type == "link_open" else "src")
            if target is not None:
                yield unquote(str(target))


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    found: list[str] = []
    tokens = MARKDOWN.parse(page.read_text(encoding="utf-8"))
    for before, token in pairwise(tokens):
        if before.type == "heading_open":
            text = "".join(part.content for part in token.children or [])
            slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
            repeated = sum(re.fullmatch(rf"{re.escape(slug)}(-\d+)?", other) is not None for other in found)
            found.append(f"{slug}-{repeated}" if repeated else slug)
    return {*found}


def problem(page: Path, target: str) -> str | None:
    """What is wrong with a link, if anything."""
    parts = urlsplit(target)
    if parts.scheme:
        well_formed = parts.scheme == "https" and re.fullmatch(r"[\w-]+(\.[\w-]+)+", parts.netloc)
        return None if well_formed else "is no https address"
    path = (page.parent / parts.path).resolve() if parts.path else page
    if not path.exists() or not path.is_relative_to(REPO):
        return "is no file of the repository"
    if parts.fragment and parts.fragment not in anchors(path):
        return f"is no anchor; there are {', '.join(sorted(anchors(path)))}"
    return None


def test_links_are_found():
    assert sum(len([*links(page)]) for page in PAGES) > 100


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPO)))
def test_links(page):
    assert {target: found for target in links(page) if (found := problem(page, target))} == {}


@pytest.mark.parametrize(
    "target",
    [
        "no.md",
        "settings.md#no-such-heading",
        "#no-such-heading",
        "../../outside.md",
        "http://a.org",
        "https://a b",
        "no.png",
    ],
)
def test_broken_links_are_found(target):
    assert problem(REPO / "docs" / "index.md", target)


def test_repeated_headings_have_anchors_of_their_own(tmp_path):
    (tmp_path / "page.md").write_text("# The `scfs` page's title\n## Same\n## Same\n")
    assert anchors(tmp_path / "page.md") == {"the-scfs-pages-title", "same", "same-1"}


def test_pages_mentioned_in_code_exist():
    roots = [REPO / name for name in MENTIONS]
    files = [file for root in roots for file in ([root] if root.is_file() else sorted(root.rglob("*")))]
    mentioned = {
        (file.relative_to(REPO), name)
        for file in files
        if file.suffix in (".py", ".toml", ".md", ".sh", "") and file.is_file()
        for name in re.findall(r"\bdocs/[\w/]+\.md\b", file.read_text(encoding="utf-8"))
    }
    assert len(mentioned) > 20
    assert {(file, name) for file, name in mentioned if not (REPO / name).exists()} == set()
