import os
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from scfs.errors import UserError
from scfs.markdown import markdown_table

Row = dict[str, str]


def check_page(write: str) -> None:
    """Raise a `UserError` if a page cannot be written to, before the work whose results it is for."""
    if not write:
        return
    page = Path(write)
    if page.is_dir() or not page.parent.is_dir() or not os.access(page if page.exists() else page.parent, os.W_OK):
        raise UserError(f"Cannot write to {page}; give --write a file in a folder that exists and can be written to.")


def show(console: Console, title: str, rows: list[Row], *, write: str = "", picture: str = "") -> None:
    """Print a table, and add it to a Markdown page if one is named, with a picture beside the page if there is one."""
    table = Table(*rows[0], title=title)
    for row in rows:
        table.add_row(*map(Text, row.values()))
    console.print(table)
    if write:
        add_section(Path(write), title, rows, picture)


def add_section(page: Path, title: str, rows: list[Row], picture: str) -> None:
    """Append a table with its title to a page, then the picture."""
    table = markdown_table(list(rows[0]), [list(row.values()) for row in rows])
    with page.open("a", encoding="utf-8") as file:
        file.write(f"\n### {title}\n\n{table}\n")
        if picture:
            file.write(f"\n![{title}]({picture})\n")
