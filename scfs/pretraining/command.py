from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from scfs.config import Config
from scfs.errors import UserError
from scfs.pretraining.dry_run import preview
from scfs.pretraining.job import pretrain
from scfs.recipe import Change


def pretrain_or_preview(
    config: Config, *, name: str, changes: Sequence[Change], resume: bool, dry_run: bool, console: Console
) -> Path:
    """The `scfs pretrain` command: returns the run folder, or with `dry_run` the picture of example views."""
    if resume and dry_run:
        raise UserError("--dry-run is for new runs; omit --resume.")
    if dry_run:
        return preview(config, name=name, changes=changes, console=console)
    return pretrain(config, name=name, resume=resume, console=console, changes=changes)
