"""The site builds without network or warnings, every link in it works, and its reference is complete."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from conftest import REPO

import scfs
from scfs.commands import COMMANDS
from scfs.config import Config
from scfs.recipe import setting_names
from scfs.recipes.catalogue import FOLDERS, recipe_names

PROXY = "http://127.0.0.1:9"  # nobody listens there


class Page(HTMLParser):
    """What a page of the site has: anchors, links, and what it loads."""

    def __init__(self, text: str):
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        values = {name: value or "" for name, value in attrs}
        self.ids += [values["id"]] if "id" in values else []
        self.links += [values["href"]] if tag == "a" and "href" in values else []
        loaded = values.get("href" if tag == "link" else "src")
        self.loads += [loaded] if loaded else []


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The site, built as `make docs` does."""
    folder = tmp_path_factory.mktemp("site")
    [words] = re.findall(r"\$\(BIN\)/python -m (sphinx .*) build/docs$", (REPO / "Makefile").read_text(), re.MULTILINE)
    assert {"-W", "-n"} < {*words.split()}
    environment = {**os.environ, "http_proxy": PROXY, "https_proxy": PROXY, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", *words.split(), folder]
    done = subprocess.run(command, capture_output=True, text=True, cwd=REPO, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site) -> dict[Path, Page]:
    """The pages of the site."""
    return {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}


def test_every_markdown_file_is_a_page(site):
    sources = {path.relative_to(REPO / "docs").with_suffix(".html") for path in (REPO / "docs").rglob("*.md")}
    assert {path for path in sources if not (site / path).exists()} == set()


def test_links_and_anchors(pages):
    broken = {(path.name, link) for path, page in pages.items() for link in page.links if not works(path, link, pages)}
    assert broken == set()


@pytest.mark.parametrize(
    "link", ["no.html", "method.html#no-such-anchor", "#no-such-anchor", "http://a.org", "https://a"]
)
def test_broken_links_are_found(site, pages, link):
    assert works(site / "index.html", "method.html#equation-8", pages)
    assert not works(site / "index.html", link, pages)


def works(path: Path, link: str, pages: dict[Path, Page]) -> bool:
    """Whether a link leads to a file of the site and, in a page, to an anchor; other addresses must be well-formed."""
    parts = urlsplit(link)
    if parts.scheme:
        return parts.scheme == "https" and "." in parts.netloc
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    is_anchor = not parts.fragment or target not in pages or parts.fragment in pages[target].ids
    return target.exists() and is_anchor


def test_nothing_is_loaded_from_elsewhere(site, pages):
    loaded = {(path, name) for path, page in pages.items() for name in page.loads}
    assert len(loaded) > 100
    for path, name in loaded:
        parts = urlsplit(name)
        assert parts.scheme == "data" or (not parts.scheme and not parts.netloc), (path.name, name)
        assert parts.scheme == "data" or (path.parent / unquote(parts.path)).exists(), (path.name, name)
    for style in site.rglob("*.css"):
        assert not re.search(r"(@import|url\()\s*[\"']?(https?:)?//", style.read_text(encoding="utf-8")), style


def test_ids_are_unique(pages):
    for path, page in pages.items():
        assert len({*page.ids}) == len(page.ids), path.name


def test_every_command_is_in_the_reference(site, pages):
    ids = {*pages[site / "reference" / "commands.html"].ids}
    expected = set()
    for name, command in COMMANDS.items():
        section = f"scfs-{name.replace(' ', '-')}"
        expected |= {section, *(f"cmdoption-{section}-{switch}" for switch in command.switches)}
        module, _, model = command.settings.partition(":")
        settings = setting_names(getattr(import_module(module), model)) if module else ()
        expected |= {f"cmdoption-{section}-{setting}" for setting in settings if "." not in setting}
    assert len(expected) > 150
    assert expected - ids == set()


def test_every_setting_is_in_the_reference(site, pages):
    ids = {*pages[site / "reference" / "settings.html"].ids}
    assert {f"confval-{name}" for name in setting_names(Config)} - ids == set()


def test_every_recipe_is_in_the_reference(site, pages):
    ids = {*pages[site / "reference" / "recipes.html"].ids}
    names = {name.replace("_", "-") for kind in FOLDERS for name in recipe_names(kind)}
    assert names - ids == set()


def test_every_public_name_is_in_the_reference(site, pages):
    ids = {*pages[site / "reference" / "python.html"].ids}
    assert {f"scfs.{name}" for name in scfs.__all__ if name != "__version__"} - ids == set()


def test_equations_and_their_code(site, pages):
    ids = pages[site / "method.html"].ids
    assert [i for i in ids if i.startswith("equation-")] == [f"equation-{number}" for number in range(1, 12)]
    text = (site / "method.html").read_text(encoding="utf-8")
    assert text.count("<math ") > 20
    assert "search_attention" in text  # from the code


def test_every_difference_is_listed():
    """At least by the file that has the comment."""
    files = [path for path in (REPO / "scfs").rglob("*.py") if "# Differs from the paper:" in path.read_text("utf-8")]
    listed = re.findall(r"\]\(\.\./(scfs/\S+\.py)\)\)", (REPO / "docs" / "differences.md").read_text("utf-8"))
    assert {*listed} == {str(path.relative_to(REPO)) for path in files}
    assert len(listed) > 3


@pytest.mark.parametrize("name", ["index", "method", "results", "reference/commands", "reference/python"])
def test_pages_fit_a_phone(site, open_page, name):
    page = open_page((site / f"{name}.html").as_uri(), viewport={"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
