"""HTML in which text is escaped by construction: only what is already `Html` is taken as it is."""

import html
from collections.abc import Iterable, Sequence
from typing import NamedTuple

VOID = {"img", "br", "rect", "circle", "line", "path", "polyline"}  # elements without content


class Html(str):
    """Markup, as opposed to text."""

    __slots__ = ()


class Section(NamedTuple):
    """A part of the page, with a link to it in its table of contents."""

    title: str
    content: Html
    intro: str = ""  # a sentence on how to read it


def tag(name: str, *content: str, **attributes: str | float | bool | None) -> Html:
    """An element. Attributes end with _ where Python has the word, and have _ for -; None omits one."""
    words = "".join(_attribute(key.rstrip("_").replace("_", "-"), value) for key, value in attributes.items())
    if name in VOID and not content:
        return Html(f"<{name}{words}/>" if name not in ("img", "br") else f"<{name}{words}>")
    return Html(f"<{name}{words}>{join(content)}</{name}>")


def _attribute(key: str, value: str | float | bool | None) -> str:
    if value is None or value is False:
        return ""
    if value is True:
        return f" {key}"
    return f' {key}="{html.escape(f"{value:g}" if isinstance(value, float) else str(value))}"'


def join(parts: Iterable[str]) -> Html:
    """Parts one after another, text escaped."""
    return Html("".join(part if isinstance(part, Html) else html.escape(part, quote=False) for part in parts))


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, class_: str = "") -> Html:
    """A table that scrolls on its own where it is wider than the page; without a header row if `head` is empty."""
    top = tag("thead", tag("tr", *(tag("th", cell) for cell in head))) if head else Html()
    body = tag("tbody", *(tag("tr", *(tag("td", cell) for cell in row)) for row in rows))
    return tag("div", tag("table", top, body, class_=class_ or None), class_="wide")


def folded(title: str, content: Html) -> Html:
    """A part that is closed until it is clicked, or printed."""
    return tag("details", tag("summary", title), content)


def columns(parts: Sequence[Html], *, class_: str = "columns") -> Html:
    """Parts side by side where there is room."""
    return tag("div", *parts, class_=class_, style=f"--columns:{len(parts)}")
