from pathlib import Path

from rich.console import Console
from rich.table import Table

Row = dict[str, str]


def show(console: Console, title: str, rows: list[Row], *, write: str = "", picture: str = "") -> None:
    """Print a table, and add it to a Markdown page if one is named, with a picture beside the page if there is one."""
    table = Table(*rows[0], title=title)
    for row in rows:
        table.add_row(*row.values())
    console.print(table)
    if write:
        add_section(Path(write), title, rows, picture)


def add_section(page: Path, title: str, rows: list[Row], picture: str) -> None:
    """Put a table under its title at the end of a page, then the picture."""
    head = list(rows[0])
    lines = [head, ["---"] * len(head), *(list(row.values()) for row in rows)]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    with page.open("a", encoding="utf-8") as file:
        file.write(f"\n### {title}\n\n{table}\n")
        if picture:
            file.write(f"\n![{title}]({picture})\n")
