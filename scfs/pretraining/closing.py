import shlex
from pathlib import Path

from rich.console import Console

from scfs.distributed import is_rank_zero
from scfs.runs.layout import read_metrics
from scfs.runs.metrics_log import summarise


def print_score(folder: Path, console: Console) -> None:
    """Print what a finished run achieved."""
    if is_rank_zero():
        console.print(f"\n{summarise(read_metrics(folder))}", style="bold")


def print_next_commands(folder: Path, duration: str, console: Console, *, has_labels: bool) -> None:
    """Print where a finished run is, and commands to continue with, ready to be copied.

    has_labels: of the images it was trained on, which evaluations then use.
    """
    run, data = shlex.quote(str(folder)), "" if has_labels else " --data FOLDER"
    lines = {
        "run folder": folder,
        "time": duration,
        "pictures": f"scfs report {run}",
        "k-NN accuracy": f"scfs knn {run}{data}",
        "weights": f"scfs export {run} {shlex.quote(str(folder / 'backbone.safetensors'))}",
    }
    for name, text in lines.items():
        console.print(f"{name:14} {text}")
