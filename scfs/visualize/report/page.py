import re
from collections.abc import Sequence
from importlib.resources import files
from string import Template

from scfs.visualize.report.markup import Html, Section, join, tag


def render_page(title: str, lead: Html, sections: Sequence[Section]) -> str:
    """The report as one HTML file that needs no other."""
    contents = [tag("a", section.title, href=f"#{_anchor(section.title)}") for section in sections]
    return Template(_file("page.html")).substitute(
        title=join([title]),
        style=_file("page.css"),
        script=_file("page.js"),
        lead=lead,
        contents=join(contents),
        sections=join(_render(section) for section in sections),
    )


def _render(section: Section) -> Html:
    intro = tag("p", section.intro, class_="intro") if section.intro else Html()
    return tag("section", tag("h2", section.title), intro, section.content, id=_anchor(section.title))


def _anchor(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def _file(name: str) -> str:
    return files("scfs.visualize.report").joinpath(name).read_text(encoding="utf-8")
