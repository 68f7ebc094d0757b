"""What jobs tell goes to the logger `scfs`; only the command line shows it."""

import io
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console, NewLine
from rich.control import Control

LOGGER = logging.getLogger("scfs")
LOGGER.addHandler(logging.NullHandler())  # in a program that did not ask for logs, nothing is printed
LEVELS = {"dim": logging.DEBUG, "yellow": logging.WARNING, "bold yellow": logging.WARNING}  # by style; others: info


class LoggingConsole(Console):
    """A rich console whose lines and tables are records of the logger `scfs`. Of several processes, the first speaks.

    It draws nothing itself, so it counts as no terminal and shows no live bar; the command line's does.
    """

    def __init__(self, *, on_terminal: bool = False):
        speaks = os.environ.get("RANK", "0") == "0"
        super().__init__(quiet=not speaks, force_terminal=None if on_terminal else False)

    def print(self, *objects: Any, style: Any = None, **options: Any) -> None:
        """Log it; what rich draws for its live display goes to the terminal."""
        if self.quiet:
            return
        if objects and all(isinstance(each, Control | NewLine) for each in objects):
            super().print(*objects, style=style, **options)
            return
        level = LEVELS.get(str(style or ""), logging.INFO)
        if LOGGER.isEnabledFor(level):
            LOGGER.log(level, "%s", _text(*objects, **options), extra={"printed": (objects, style, options)})


class TerminalHandler(logging.Handler):
    """Shows records on the terminal: what a job printed as it printed it, with its colours."""

    def __init__(self, console: Console):
        super().__init__()
        self.console = console

    def emit(self, record: logging.LogRecord) -> None:
        style = "yellow" if record.levelno >= logging.WARNING else None
        plain = {"soft_wrap": True, "highlight": False, "markup": False}
        objects, style, options = getattr(record, "printed", ((self.format(record),), style, plain))
        Console.print(self.console, *objects, style=style, **options)


@contextmanager
def terminal_console(*, verbose: bool = False, quiet: bool = False) -> Iterator[Console]:
    """The console of a command: records of the logger `scfs` go to standard output, warnings in yellow."""
    console = LoggingConsole(on_terminal=not quiet)
    handler = TerminalHandler(console)
    level, propagate = LOGGER.level, LOGGER.propagate
    LOGGER.setLevel(logging.WARNING if quiet else logging.DEBUG if verbose else logging.INFO)
    LOGGER.propagate = False
    LOGGER.addHandler(handler)
    try:
        yield console
    finally:
        LOGGER.removeHandler(handler)
        LOGGER.setLevel(level)
        LOGGER.propagate = propagate


def _text(*objects: Any, **options: Any) -> str:
    """As it would stand in a file."""
    file = io.StringIO()
    Console(file=file, width=120, force_terminal=False).print(*objects, **options)
    return file.getvalue().rstrip("\n")
