import importlib
import sys
from typing import Any


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook, which shows what IPython displays."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return getattr(shell, "kernel", None) is not None


class NotebookLine:
    """A line of text in the output of a notebook's cell. A saved notebook holds only its last text."""

    def __init__(self) -> None:
        self._handle: Any = None

    def update(self, text: str) -> None:
        """Show the line, or replace it."""
        content = {"text/plain": text}
        if self._handle is None:
            display = importlib.import_module("IPython.display").display
            self._handle = display(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)
