import shlex
from collections.abc import Iterator
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import Progress

from scfs.data.files import read_folder
from scfs.data.loader import MAX_WORKERS, load, num_workers
from scfs.data.skipped import show_skipped, skipped_by_suffix
from scfs.data_resize.copies import Copied, Copies
from scfs.data_resize.settings import ResizeData
from scfs.distributed import num_cores
from scfs.errors import UserError
from scfs.runs.files import read_json, write_json

RECORD = ".scfs-resized.json"  # in the folder of the copies: what they were made of, and how
BATCH = 4  # images that a worker reports at a time
MAX_NAMED = 5


def resize_data(source: str, out: Path, settings: ResizeData, console: Console) -> Path:
    """Write smaller copies of every image below a folder: the `scfs resize-data` command.

    Large photos take longer to decode than to train on, in every epoch. Folders and names stay; copies that exist are
    kept, so that an interrupted command continues. Returns the folder of the copies.
    """
    root, out = Path(source).expanduser(), out.expanduser()
    if not root.is_dir():
        raise UserError(f"{source} is not a folder; give a folder of images.")
    if out.resolve() == root.resolve() or root.resolve() in out.resolve().parents:
        raise UserError(f"{out} is in {source}, whose images would then include the copies; choose another folder.")
    images = read_folder(root, max_pixels=settings.max_megapixels * 1_000_000)
    _open_folder(out, {"source": str(root.resolve()), "side": settings.side, "quality": settings.quality})
    copies = Copies(images, root, out, side=settings.side, quality=settings.quality)
    resized, copied, unreadable = 0, 0, list[str]()
    pending = [index for index in range(len(images)) if not copies.is_done(index)]
    for done in _written(copies, pending, settings, console):
        resized += done.resized
        copied += not done.resized and not done.unreadable
        unreadable += [done.unreadable] if done.unreadable else []
    for problem in unreadable[:MAX_NAMED]:
        console.print(problem, style="yellow")
    if len(unreadable) > MAX_NAMED:
        console.print(f"... and {len(unreadable) - MAX_NAMED} more", style="yellow")
    show_skipped(skipped_by_suffix(source, all_splits=True), console)
    counts = {
        f"resized to {settings.side} pixels on the shorter side": resized,
        "copied as they are": copied,
        "there before": len(images) - len(pending),
        "unreadable": len(unreadable),
    }
    console.print(f"{out}: " + ", ".join(f"{count} {what}" for what, count in counts.items() if count))
    console.print(f"train on them  scfs pretrain {shlex.quote(str(out))}")
    return out


def _open_folder(out: Path, record: dict[str, str | int]) -> None:
    """Create the folder of the copies, or check that it has copies of the same images, made in the same way."""
    is_new = not out.exists() or (out.is_dir() and not any(out.iterdir()))
    found = read_json(out / RECORD, dict[str, str | int]()) if out.is_dir() else {}
    if not is_new and not found:
        raise UserError(f"{out} exists and has no copies of scfs resize-data; choose another name.")
    for name, value in record.items():
        if found and found.get(name) != value:
            raise UserError(f"{out} has copies with {name} {found.get(name)}, not {value}; choose another name.")
    if not found:
        out.mkdir(parents=True, exist_ok=True)
        write_json(out / RECORD, record)


def _written(copies: Copies, pending: list[int], settings: ResizeData, console: Console) -> Iterator[Copied]:
    """Make the copies; yields what became of each image."""
    auto = min(num_cores(), MAX_WORKERS, len(pending) // BATCH)
    workers = num_workers(auto if settings.workers == "auto" else settings.workers, torch.device("cpu"))
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("images", total=len(pending))
        options = {"batch_size": BATCH, "sampler": pending, "collate_fn": list}
        for batch in load(copies, workers=workers, pin=False, **options):
            progress.advance(task, len(batch))
            yield from batch
