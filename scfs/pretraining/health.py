from collections import deque
from collections.abc import Callable, Iterator, Mapping

from scfs.runs.findings import WINDOW, findings, first_check


class Health:
    """Detects collapse from the loss, entropy and spread of every head and the spread of features.

    Warns once about each kind. num_outputs: K of the head of a term, None if it has no softmax.
    """

    def __init__(self, total_steps: int, num_outputs: Callable[[str], int | None]):
        self.first_step = first_check(total_steps)
        self.num_outputs = num_outputs
        self.recent: deque[Mapping[str, float]] = deque(maxlen=WINDOW)
        self.warned: set[tuple[str, str]] = set()

    def check(self, step: int, numbers: Mapping[str, float]) -> Iterator[str]:
        """Warnings, each with a remedy, after `step` steps; `numbers` are those of the last step."""
        self.recent.append(numbers)
        if step < self.first_step or len(self.recent) < WINDOW:
            return
        means = {name: sum(row[name] for row in self.recent) / WINDOW for name in numbers}
        for kind, term, message in findings(means, self.num_outputs):
            if (kind, term) not in self.warned:
                self.warned.add((kind, term))
                yield message
