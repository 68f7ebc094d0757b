import re
from collections.abc import Callable, Iterable

# A pattern of whole parameter names, and the other library's name: a template, or a function of the match.
Rule = tuple[str, str | Callable[[re.Match[str]], str]]


def rename(names: Iterable[str], rules: Iterable[Rule]) -> dict[str, str] | None:
    """Parameter names -> another library's, each by the first rule that matches; None if one has no rule."""
    rules = list(rules)
    renamed = {}
    for name in names:
        if (theirs := _renamed(name, rules)) is None:
            return None
        renamed[name] = theirs
    return renamed


def _renamed(name: str, rules: list[Rule]) -> str | None:
    for pattern, theirs in rules:
        if match := re.fullmatch(pattern, name):
            return match.expand(theirs) if isinstance(theirs, str) else theirs(match)
    return None
