"""How long does an installation take, and how large is it? The package by itself, and what each extra adds.

    python benchmarks/install.py [--write PAGE.md]

Builds the wheel and installs it in an empty environment; packages come from pip's cache or index, as on any machine.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

from rich.console import Console

from scfs.bench.page import show
from scfs.extras import EXTRAS

REPO = Path(__file__).parent.parent


def pip(python: Path, *words: object) -> None:
    command = [python, "-m", "pip", "--quiet", "--disable-pip-version-check", *words]
    subprocess.run([str(word) for word in command], check=True)


def megabytes(folder: Path) -> float:
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink()) / 1e6


def missing(python: Path, requirement: str, report: Path) -> list[str]:
    """What an installation would add, as name==version."""
    pip(python, "install", "--dry-run", "--report", report, requirement)
    found = json.loads(report.read_text(encoding="utf-8"))["install"]
    return [f"{item['metadata']['name']}=={item['metadata']['version']}" for item in found]


def row(name: str, start: float, size: float, sign: str = "") -> dict[str, str]:
    return {"installed": name, "seconds": f"{sign}{time.monotonic() - start:.0f}", "MB": f"{sign}{size:.0f}"}


def measure(folder: Path) -> list[dict[str, str]]:
    pip(Path(sys.executable), "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, REPO)
    (wheel,) = folder.glob("scfs-*.whl")
    venv.EnvBuilder(with_pip=True).create(folder / "venv")
    python = folder / "venv" / "bin" / "python"
    start, before = time.monotonic(), megabytes(folder / "venv")
    pip(python, "install", wheel)
    rows = [row("scfs", start, megabytes(folder / "venv") - before)]
    for extra in EXTRAS:
        pins = missing(python, f"{wheel}[{extra}]", folder / "report.json")
        pins = [pin for pin in pins if not pin.startswith("scfs==")]
        start = time.monotonic()
        pip(python, "install", "--no-deps", "--target", folder / extra, *pins)
        rows.append(row(f"scfs[{extra}]", start, megabytes(folder / extra), "+"))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--write", default="")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(Path(folder))
    show(Console(), "An installation, and what each extra adds to it", rows, write=args.write)


if __name__ == "__main__":
    main()
