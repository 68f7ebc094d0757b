"""What jobs print goes to the logger `scfs`; the command line shows it, other programs see only its warnings."""

import io
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from rich.console import Console, NewLine
from rich.control import Control
from rich.text import Text

from scfs.printable import printable

LOGGER = logging.getLogger("scfs")
LEVELS = {"dim": logging.DEBUG, "yellow": logging.WARNING, "bold yellow": logging.WARNING}  # by style; others: info


class PlainConsole(Console):
    """A rich console that shows text as it is: one colour, lines of any length, paths that are no markup.

    Control characters are made visible. In notebooks too it writes text to its file, where rich would display HTML and
    need widgets for progress bars.
    """

    def __init__(self, **options: Any):
        super().__init__(markup=False, highlight=False, force_jupyter=False, **options)

    def print(self, *objects: Any, soft_wrap: bool | None = None, **options: Any) -> None:
        """Lines are not wrapped, tables are."""
        is_text = all(isinstance(each, str) for each in objects)
        super().print(*objects, soft_wrap=is_text if soft_wrap is None else soft_wrap, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """The text of a line, or of a cell or title of a table."""
        return super().render_str(printable(text), **options)


class LoggingConsole(PlainConsole):
    """A rich console that logs its lines and tables to the logger `scfs`, in rank zero only.

    It draws nothing itself, so it is not a terminal and shows no live progress bar; the command line's does.
    """

    def __init__(self, *, on_terminal: bool = False):
        is_rank_zero = os.environ.get("RANK", "0") == "0"
        super().__init__(quiet=not is_rank_zero, force_terminal=None if on_terminal else False)

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

    def on_broken_pipe(self) -> None:
        """Go on without output when its reader has closed it, as `head` does: rich would end a training."""
        self.quiet = True
        with suppress(OSError):  # not a file of the system
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())


class TerminalHandler(logging.Handler):
    """Shows records on the terminal, with the colours that the job printed them in."""

    def __init__(self, console: PlainConsole):
        super().__init__()
        self.console = console

    def emit(self, record: logging.LogRecord) -> None:
        style = "yellow" if record.levelno >= logging.WARNING else None
        objects, style, options = getattr(record, "printed", ((self.format(record),), style, {}))
        PlainConsole.print(self.console, *objects, style=style, **options)


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
    """The text as it would be in a file."""
    file = io.StringIO()
    PlainConsole(file=file, width=120, force_terminal=False).print(*objects, **options)
    return file.getvalue().rstrip("\n")
