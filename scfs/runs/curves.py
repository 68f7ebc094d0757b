from pathlib import Path
from typing import NamedTuple

from scfs.errors import UserError
from scfs.runs.layout import METRICS, read_metrics


class Curve(NamedTuple):
    """A number that was logged during training, so that `plt.plot(*curve)` draws it."""

    steps: list[int]
    values: list[float]

    def __repr__(self) -> str:
        return f"Curve({len(self.values)} points, {self.values[0]:.4g} to {self.values[-1]:.4g})"


def read_curves(run: str | Path) -> dict[str, Curve]:
    """The training curves of a run by name, such as `loss` and `knn_top1`; also while it is training.

    Accuracies are fractions. The names are those of metrics.jsonl.
    """
    if not (Path(run) / METRICS).is_file():
        raise UserError(f"{run} has no {METRICS}; give the folder of a run that has started to train.")
    curves: dict[str, Curve] = {}
    for row in read_metrics(Path(run)):
        for name, value in row.items():
            if name not in ("step", "epoch", "metrics"):
                steps, values = curves.setdefault(name, Curve([], []))
                steps.append(row["step"])
                values.append(value)
    return curves
