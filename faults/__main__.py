"""python -m faults [--only WORDS ...] [--tries N] [--seed N] [--write PAGE]: break runs and print what survived."""

import argparse
import random
import shutil
import statistics
from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp

from faults import files, fuzz, machines, numbers, processes
from faults.launch import Outcome
from scfs.markdown import markdown_table

HEAD = ("fault", "tries", "survived", "steps lost", "seconds to the end")
MARK = "<!-- table -->"
VERBOSE_TRIES = 50  # of a fault; of more, only what was lost is printed
Fault = Callable[[Path, random.Random], Outcome]
FAULTS: dict[str, tuple[int, Fault]] = {
    **processes.FAULTS,
    **machines.FAULTS,
    **numbers.FAULTS,
    **files.FAULTS,
    **fuzz.FAULTS,
}


def try_fault(name: str, tries: int, seed: int) -> list[Outcome]:
    """Try a fault several times, each in a folder of its own."""
    root, outcomes = Path(mkdtemp(prefix="faults-")), []
    for number in range(tries):
        outcome = FAULTS[name][1](root / f"try-{number}", random.Random(f"{seed} {name} {number}"))
        if tries <= VERBOSE_TRIES or not outcome.survived:
            print(f"  {'ok' if outcome.survived else 'LOST'}  {outcome.note}", flush=True)
        outcomes.append(outcome)
    if all(outcome.survived for outcome in outcomes):  # otherwise there is something to look at
        shutil.rmtree(root)
    return outcomes


def line(name: str, outcomes: list[Outcome]) -> list[str]:
    """A row of the table."""
    lost = [each.steps_lost for each in outcomes if each.steps_lost is not None]
    seconds = [each.seconds for each in outcomes if each.seconds is not None]
    return [
        name,
        str(len(outcomes)),
        str(sum(each.survived for each in outcomes)),
        f"{max(lost)} at most" if lost else "",
        f"{statistics.median(seconds):.1f} (at most {max(seconds):.1f})" if seconds else "",
    ]


def main() -> int:
    """Try all faults, or some; the exit code is 1 if one was not survived."""
    parser = argparse.ArgumentParser(prog="python -m faults", description=__doc__)
    parser.add_argument("--only", nargs="*", default=[], help="faults whose names have one of these words")
    parser.add_argument("--tries", type=int, help="of each fault; without it, as in the table")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", type=Path, help="page whose table is replaced")
    args = parser.parse_args()
    chosen = [name for name in FAULTS if not args.only or any(word in name for word in args.only)]
    if not chosen:
        parser.error(f"no fault has one of the words {', '.join(args.only)}; they are: {'; '.join(FAULTS)}")
    lines: dict[str, list[str]] = {}
    survived = True
    for name in chosen:
        print(name, flush=True)
        outcomes = try_fault(name, args.tries or FAULTS[name][0], args.seed)
        survived &= all(each.survived for each in outcomes)
        lines[name] = line(name, outcomes)
        if args.write:
            write(args.write, lines)
    print(markdown_table(HEAD, list(lines.values())))
    return 0 if survived else 1


def write(page: Path, lines: dict[str, list[str]]) -> None:
    """Replace the rows of these faults in the table of a page, and keep the others."""
    before, _, rest = page.read_text(encoding="utf-8").partition(MARK)
    table, _, after = rest.partition(MARK)
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in table.strip().splitlines()[2:]]
    lines = {row[0]: row for row in rows} | lines
    table = markdown_table(HEAD, [lines[name] for name in FAULTS if name in lines])
    page.write_text(f"{before}{MARK}\n\n{table}\n\n{MARK}{after}", encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main())
