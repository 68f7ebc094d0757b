"""Text that a terminal shows as it is: names of files may hold escape codes, which would move its cursor or worse."""

import re

# Control characters, those that change the direction of text, and bytes that are not text (PEP 383).
HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    r"""The same text, with control characters written out, such as \x1b; line feeds and tabs stay."""
    return HIDDEN.sub(lambda match: _written(match[0]), text)


def one_line(text: str) -> str:
    """The same, with line feeds and tabs written out too: for the name of a file."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


def _written(character: str) -> str:
    number = ord(character)
    if 0xDC80 <= number <= 0xDCFF:  # a byte that is not text
        number -= 0xDC00
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"
