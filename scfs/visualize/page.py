import html
from collections.abc import Sequence
from typing import NamedTuple

PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{title}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; color: #222 }}
img {{ max-width: 100% }} table {{ border-collapse: collapse; font-size: 13px }}
th, td {{ border-bottom: 1px solid #ddd; padding: .15rem .8rem .15rem 0; text-align: left }}
.score {{ font-size: 1.6rem }}
</style>
<h1>{title}</h1>
<p class="score">{score}</p>
{sections}
</html>
"""


class Section(NamedTuple):
    """A part of the page: a heading, a sentence, and a picture or a table."""

    heading: str
    text: str = ""
    picture: str = ""  # file name, in the folder of the page
    table: str = ""  # HTML


def render_page(title: str, score: str, sections: Sequence[Section]) -> str:
    """The report as HTML."""
    body = "\n".join(_render_section(section) for section in sections)
    return PAGE.format(title=html.escape(title), score=html.escape(score), sections=body)


def render_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table as HTML, without a header row if `head` is empty."""
    lines = [_row("td", row) for row in rows]
    return f"<table>{_row('th', head) if head else ''}{''.join(lines)}</table>"


def _render_section(section: Section) -> str:
    heading = html.escape(section.heading)
    text = f"<p>{html.escape(section.text)}</p>" if section.text else ""
    picture = f'<img src="{html.escape(section.picture)}" alt="{heading}">' if section.picture else ""
    return f"<h2>{heading}</h2>{text}{picture}{section.table}"


def _row(tag: str, cells: Sequence[str]) -> str:
    return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"
