import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

PER_CENT = "%"


@dataclass(frozen=True, repr=False)
class Metric:
    """One number of an evaluation, with what is needed to compare, plot and report it."""

    name: str  # within its evaluation: "top-1", "AP50"
    value: float  # a fraction where the unit is %
    interval: tuple[float, float] | None = None  # 95 %, over test images; None if unknown
    unit: str = PER_CENT
    higher_is_better: bool = True

    @property
    def key(self) -> str:
        """Its name in logs: "k-NN top-1" is knn_top1."""
        return re.sub(r"[^a-z0-9 ]", "", self.name.lower()).replace(" ", "_")

    @property
    def scale(self) -> float:
        """The factor from values to what is shown: fractions are shown in per cent."""
        return 100.0 if self.unit == PER_CENT else 1.0

    @property
    def bounds(self) -> tuple[float, float]:
        """The interval, or the value itself where none is known."""
        return self.interval or (self.value, self.value)

    def shown(self) -> str:
        """The value in its unit, without the unit's name."""
        return f"{self.scale * self.value:.1f}"

    def shown_interval(self) -> str:
        """The interval in the metric's unit; empty if unknown."""
        return "" if self.interval is None else "-".join(f"{self.scale * end:.1f}" for end in self.interval)

    def __str__(self) -> str:
        return f"{self.name} {self.shown()}{' ' * bool(self.unit)}{self.unit}"

    def __repr__(self) -> str:
        return f"{self} ({self.shown_interval()})" if self.interval else str(self)

    def ties_with(self, best: "Metric") -> bool:
        """Whether the difference to the best metric of a row is within the interval of either."""
        if self == best:
            return False
        return any(
            low <= value <= high
            for (low, high), value in ((self.bounds, best.value), (best.bounds, self.value))
            if low < high
        )


def best_of(metrics: Iterable[Metric]) -> Metric:
    """The best of several metrics with the same name."""
    return max(metrics, key=lambda metric: metric.value if metric.higher_is_better else -metric.value)


def by_name(metrics: Iterable[Metric]) -> dict[str, Metric]:
    """Metrics by their names."""
    return {metric.name: metric for metric in metrics}


def as_json(metrics: Iterable[Metric]) -> list[dict[str, Any]]:
    """Metrics as stored in files."""
    return [asdict(metric) for metric in metrics]


def from_json(entries: Sequence[dict[str, Any]]) -> list[Metric]:
    """Metrics that `as_json` wrote; a `TypeError`, `KeyError` or `ValueError` if somebody else did."""
    return [Metric(**{**entry, **_numbers(entry)}) for entry in entries]


def _numbers(entry: dict[str, Any]) -> dict[str, Any]:
    value, interval = float(entry["value"]), None
    if entry.get("interval"):
        low, high = entry["interval"]
        interval = float(low), float(high)
    return {"value": value, "interval": interval}
