"""How much is learned per minute on one core? This package's method compared with common alternatives.

    python benchmarks/rivals.py run --data imagenette=FOLDER --minutes 1.5 --choose         # learning rates
    python benchmarks/rivals.py run --data imagenette=FOLDER --minutes 10 --seeds 0 1 2
    python benchmarks/rivals.py run --data imagenette=FOLDER --minutes 3 --changes          # the effect of each choice
    python benchmarks/rivals.py run --data imagenette=FOLDER pets=FOLDER scenes --planned   # all of the table: a day
    python benchmarks/rivals.py table --plot docs/rivals.png

Every method gets the same photos, backbone (resnet10_half), rendering of views, precision and *CPU time* on one
thread: data loading counts, evaluation does not. The number of epochs is what fits into the budget by the times of
steps, which are measured once, in turn, so that only their ratios matter (records/step_ratios.json; `rivals.py time`
measures them again). Minutes are those of the machine of the first runs; the runs of other machines get as many
epochs. Learning rates are chosen on every fifth train photo, among a third, once, three and nine times the published
one, and larger ones while the largest is best (--factors). That is less tuning than our own recipe had, whose settings
were chosen on the same held-out photos; `dino` is the same without terms at the layers, and `dino-no-multicrop` without
local views too: SimCLR's objective with our optimizer.

Runs already in the records are skipped, and an interrupted one is resumed; several processes may work on the same
records, each on its own core. Needs lightly: pip install --no-deps -r benchmarks/requirements.txt.
"""

import argparse
import itertools
from collections.abc import Iterable
from pathlib import Path

import cv2
import torch
from rival_records import (
    CHANGED,
    COMPARED,
    FACTORS,
    METHODS,
    PLAN,
    RECORDS,
    SIZES,
    Planned,
    Record,
    add_ratios,
    best_factor,
    read_ratios,
    read_records,
    same_work,
)
from rival_settings import CHANGES, settings_of
from rival_table import table

from scfs.errors import UserError
from scfs.training.cpu import keep_freed_memory
from scfs.training.precision import has_native_bfloat16


def run_all(args: argparse.Namespace) -> None:
    """Train and score what the flags ask for and the records do not have."""
    from rival_training import do  # needs lightly, the table does not

    precision = chosen_precision(args)
    sources = dict(data_named(each) for each in args.data)
    runs = [run for run in (PLAN if args.planned else asked_for(args, [*sources])) if run.data in sources]
    recorded = read_records(args.records)
    works = [work for run in runs for work in works_of(run, args, precision, recorded)]
    works = [work for work in works if not any(same_work(record, work) for record in recorded)]
    time_steps({work["method"] for work in works} - read_ratios(precision).keys(), args.data[0], precision)
    for work in works:
        do(work, sources[work["data"]], args.folder, args.records)


def works_of(run: Planned, args: argparse.Namespace, precision: str, recorded: list[Record]) -> list[Record]:
    """What identifies a run in the records: one with the best learning rate, or one for each factor to try."""
    data, minutes, method, seed = run
    best = best_factor([record for record in recorded if record["precision"] == precision], method)
    chosen = 1.0 if args.changes is not None else best
    work = {"data": data, "method": method, "minutes": minutes, "seed": seed, "precision": precision}
    work |= {"held_out": args.choose or args.changes is not None, "size": SIZES[data], "settings": settings_of(method)}
    return [{**work, "lr_factor": factor} for factor in (args.factors if args.choose else [chosen])]


def time_again(args: argparse.Namespace) -> None:
    """Time the steps of methods, whether or not that was done before."""
    time_steps({*args.methods}, args.data, chosen_precision(args))


def time_steps(methods: Iterable[str], data: str, precision: str) -> None:
    """Time the steps of methods in turn on some data, and keep their ratios to scfs."""
    from rival_training import step_ratios

    reference = {"scfs"} if precision == "bfloat16" else set()
    if names := sorted({*methods} - reference):
        if not has_native_bfloat16(torch.device("cpu")):
            raise SystemExit("Steps are timed against bfloat16, which this CPU does not have: run timed methods only.")
        ratios = step_ratios(names, data_named(data)[1], precision)
        print(f"Steps relative to scfs: {ratios}", flush=True)
        add_ratios(precision, ratios)


def chosen_precision(args: argparse.Namespace) -> str:
    """The precision that is asked for or suits this CPU; also sets up a single thread."""
    torch.set_num_threads(1)
    cv2.setNumThreads(0)
    keep_freed_memory()
    return args.precision or ("bfloat16" if has_native_bfloat16(torch.device("cpu")) else "float32")


def data_named(text: str) -> tuple[str, str]:
    """The name and source of data given as NAME=SOURCE, or by a name that is its own source."""
    name, _, source = text.partition("=")
    return name, source or name


def asked_for(args: argparse.Namespace, names: list[str]) -> list[Planned]:
    """The runs that the flags describe."""
    changed = ["scfs", *(f"scfs, {name}" for name in args.changes or CHANGES)]
    methods = args.methods if args.changes is None else changed
    each = itertools.product(names, args.seeds, methods)
    return [Planned(data, args.minutes, method, seed) for data, seed, method in each]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    runner = commands.add_parser("run", help="train and score what is not yet in the records")
    runner.add_argument("--data", nargs="+", required=True, help="imagenette=FOLDER, pets=FOLDER or scenes")
    budget = runner.add_mutually_exclusive_group(required=True)
    budget.add_argument("--minutes", type=float)
    budget.add_argument("--planned", action="store_true", help="every run of the table, most important first")
    runner.add_argument("--methods", nargs="+", choices=METHODS, default=COMPARED)
    runner.add_argument("--seeds", nargs="+", type=int, default=[0])
    runner.add_argument("--choose", action="store_true", help="try learning rates on held-out train photos")
    runner.add_argument(
        "--factors",
        nargs="+",
        type=float,
        default=FACTORS,
        help="with --choose, of the published rate; try larger ones if the largest was best",
    )
    runner.add_argument(
        "--changes",
        nargs="*",
        choices=[*CHANGES, []],  # argparse checks even an empty list
        metavar="NAME",
        help=f"change settings of scfs, on held-out train photos; without names, each of: {', '.join(CHANGES)}",
    )
    runner.set_defaults(job=run_all)
    timer = commands.add_parser("time", help="time the steps of methods again; their ratios set the numbers of epochs")
    timer.add_argument("--data", required=True, help="imagenette=FOLDER, pets=FOLDER or scenes")
    timer.add_argument("--methods", nargs="+", choices=[*METHODS, *CHANGED], default=COMPARED)
    timer.set_defaults(job=time_again)
    for each in (runner, timer):
        each.add_argument(
            "--precision", choices=["float32", "bfloat16"], help="default: bfloat16 if the CPU supports it natively"
        )
    writer = commands.add_parser("table", help="print the table")
    writer.add_argument("--precision", choices=["float32", "bfloat16"], default="bfloat16", help="of the runs")
    writer.add_argument("--plot", type=Path, help="file for the plot")
    writer.add_argument("--earlier", action="store_true", help="only runs whose settings have changed since")
    writer.set_defaults(job=table)
    for each in (runner, writer):
        each.add_argument("--records", type=Path, default=RECORDS, help="file with one line per finished run")
    runner.add_argument("--folder", type=Path, default=Path("runs/rivals"), help="folder of unfinished runs")
    args = parser.parse_args()
    if args.job is run_all and args.planned and (args.choose or args.changes is not None):
        parser.error("--planned runs are scored on val photos: without --choose and --changes")
    for each in [] if args.job is table else [args.data] if args.job is time_again else args.data:
        if data_named(each)[0] not in SIZES:
            parser.error(f"--data {each}: name the data {', '.join(SIZES)}, such as imagenette=FOLDER")
    try:
        args.job(args)
    except UserError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
