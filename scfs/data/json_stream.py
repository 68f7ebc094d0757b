"""Read a large JSON file element by element, so that memory holds no more than the elements that are used."""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scfs.errors import UserError
from scfs.regular_file import open_regular

CHUNK = 1 << 20  # characters
SPACES = " \t\n\r"


def stream_lists(path: Path, names: set[str]) -> Iterator[tuple[str, Any]]:
    """The elements of the named lists of a JSON object, each with the name of its list, in the order of the file.

    Everything else is skipped. A file that is not a JSON object, or is cut short, raises a `UserError`.
    """
    try:
        with open_regular(path) as binary, io.TextIOWrapper(binary, encoding="utf-8") as file:
            yield from _Reader(file.read).lists(names)
    except OSError as error:
        raise UserError(f"Cannot read {path}: {error.strerror}.") from None
    except (ValueError, RecursionError):  # bad JSON or UTF-8
        raise UserError(f"{path} is not a JSON object, or it is cut short; download or write it again.") from None


class _Reader:
    """The part of a file that is in memory, and the position in it."""

    def __init__(self, read: Any):
        self.read, self.text, self.position, self.ended = read, "", 0, False
        self.decoder = json.JSONDecoder()

    def lists(self, names: set[str]) -> Iterator[tuple[str, Any]]:
        self.expect("{")
        while self.peek() != "}":
            key = self.value()
            self.expect(":")
            if key in names and self.peek() == "[":
                yield from ((key, element) for element in self.elements())
            else:
                self.value()
            if self.peek() != "}":
                self.expect(",")

    def elements(self) -> Iterator[Any]:
        self.expect("[")
        while self.peek() != "]":
            yield self.value()
            if self.peek() != "]":
                self.expect(",")
        self.expect("]")

    def value(self) -> Any:
        """The next value. One that reaches the end of the text may continue in the file."""
        self.peek()
        while True:
            try:
                value, end = self.decoder.raw_decode(self.text, self.position)
                if end < len(self.text) or self.ended:
                    self.position = end
                    return value
            except ValueError:
                if self.ended:
                    raise
            self.more()

    def peek(self) -> str:
        """The next character that is not a space; the end of the file is an error."""
        while True:
            while self.position < len(self.text) and self.text[self.position] in SPACES:
                self.position += 1
            if self.position < len(self.text):
                return self.text[self.position]
            if self.ended:
                raise ValueError("cut short")
            self.more()

    def expect(self, character: str) -> None:
        if self.peek() != character:
            raise ValueError(f"expected {character}")
        self.position += 1

    def more(self) -> None:
        """Drop what is parsed and read at least as much as is left, so that long values take linear time."""
        left = self.text[self.position :]
        new = self.read(max(CHUNK, len(left)))
        self.text, self.position, self.ended = left + new, 0, not new
