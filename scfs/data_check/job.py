import csv
import io
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from scfs.data.counted import counted
from scfs.data.loader import MAX_WORKERS, num_workers
from scfs.data.paths import readable, shown
from scfs.data.skipped import skipped_by_suffix, unused_folders
from scfs.data.sources import Source, open_train
from scfs.data.unreadable import num_allowed
from scfs.data_check.findings import PROBLEMS, Finding, described, effective_set, findings
from scfs.data_check.scan import Scan, scan
from scfs.data_check.settings import CheckData
from scfs.distributed import num_cores
from scfs.errors import UserError
from scfs.runs.files import check_new, write_json, write_text

MIN_PARALLEL = 200  # images; fewer are checked before workers have started


def check_data(target: str, settings: CheckData, console: Console) -> dict[str, Any]:
    """Decode every image that would be trained on and report what is wrong: the `scfs check-data` command.

    Raises a `UserError` if pre-training would refuse the images, after everything has been reported. Returns what a
    .json file holds.
    """
    out = Path(settings.out) if settings.out else None
    if out is not None:
        check_new(out)
    source = open_train(target, max_pixels=settings.max_megapixels * 1_000_000)
    scanned = _scan(source, settings, console)
    found = list(findings(source, scanned, min_side=settings.min_side))
    report = _report(target, source, scanned, found)
    _print_report(report, found, settings, console)
    if out is not None:
        _write(out, report, found)
        console.print(f"{'report':13} {out}")
    allowed = num_allowed(report["images"], settings.max_unreadable)
    if report["unreadable"] > allowed:
        raise UserError(
            f"{report['unreadable']} of {counted(report['images'], 'image')} of {target} cannot be read, more than "
            f"the {allowed} with which training starts; repair or remove them."
        )
    console.print(f"training      may start: {report['unreadable']} unreadable, {allowed} are allowed")
    return report


def _scan(source: Source, settings: CheckData, console: Console) -> Scan:
    workers = settings.workers
    if workers == "auto":
        workers = 0 if len(source) < MIN_PARALLEL else min(num_cores(), MAX_WORKERS)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("images", total=len(source))
        count = num_workers(workers, torch.device("cpu"))
        return scan(source, workers=count, on_images=lambda images: progress.advance(task, images))


def _report(target: str, source: Source, scanned: Scan, found: Sequence[Finding]) -> dict[str, Any]:
    counts = Counter(finding.problem for finding in found)
    return {
        "source": target,
        "images": len(source),
        "unreadable": len(scanned.unreadable),
        "problems": {problem: counts[problem] for problem in PROBLEMS},
        "skipped_by_suffix": dict(skipped_by_suffix(target).most_common()),
        "unused_folders": [readable(name) for name in unused_folders(target)],
        "effective": effective_set(source, scanned),
        "findings": [finding._asdict() for finding in found],
    }


def _print_report(report: dict[str, Any], found: Sequence[Finding], settings: CheckData, console: Console) -> None:
    table = Table("problem", "images", "meaning", title=f"{counted(report['images'], 'image')} of {report['source']}")
    for problem, count in report["problems"].items():
        table.add_row(problem, str(count), PROBLEMS[problem].format(settings.min_side))
    skipped = report["skipped_by_suffix"]
    suffixes = ", ".join(f"{count} {suffix}" for suffix, count in skipped.items())
    table.add_row("skipped", str(sum(skipped.values())), suffixes or "files with other suffixes")
    console.print(table)
    for problem, count in report["problems"].items():
        listed = [finding for finding in found if finding.problem == problem][: settings.show]
        for finding in listed:
            console.print(f"{problem}: {shown(finding.image)}: {shown(finding.detail)}", style="yellow")
        if listed and count > len(listed):
            console.print(f"... and {count - len(listed)} more; --out FILE.csv has all.", style="yellow")
    for name, text in described(report["effective"]).items():
        console.print(f"{name:13} {text}")
    if unused := report["unused_folders"]:
        console.print(f"{'not used':13} beside train: {_listed(unused, max(1, settings.show))}", style="yellow")


def _listed(names: Sequence[str], most: int) -> str:
    """The first names, and how many more there are."""
    more = [f"{len(names) - most} more"] if len(names) > most else []
    return ", ".join([*map(shown, names[:most]), *more])


def _write(out: Path, report: dict[str, Any], found: Sequence[Finding]) -> None:
    if out.suffix.lower() == ".json":
        write_json(out, report)
        return
    rows = io.StringIO()
    writer = csv.writer(rows, lineterminator="\n")
    writer.writerow(Finding._fields)
    writer.writerows(found)
    write_text(out, rows.getvalue())
