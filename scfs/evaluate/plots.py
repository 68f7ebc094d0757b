from collections.abc import Mapping
from pathlib import Path

from matplotlib.figure import Figure

from scfs.evaluate.accuracy import Accuracy


def save_bars(path: Path, scores: Mapping[str, Accuracy], *, ylabel: str) -> None:
    """A bar per score, with its interval."""
    figure = Figure(figsize=(1.5 + len(scores), 3.5), layout="constrained")
    axes = figure.subplots()
    heights = [100 * score.top1 for score in scores.values()]
    below = [100 * (score.top1 - score.interval[0]) for score in scores.values()]
    above = [100 * (score.interval[1] - score.top1) for score in scores.values()]
    axes.bar(list(scores), heights, yerr=[below, above], capsize=4, color="tab:blue")
    axes.set_ylabel(ylabel)
    figure.savefig(path, dpi=120)
