from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping

from scfs.runs.findings import WINDOW, Finding, findings, first_check, rank_findings


class Health:
    """Detects collapse from the loss, entropy and spread of every head, and the spread and rank of features.

    Warns once about each kind. num_outputs: K of the head of a term, None if it has no softmax. first_rank: the
    effective rank before training; None: the first one that is checked.
    """

    def __init__(self, total_steps: int, num_outputs: Callable[[str], int | None], *, first_rank: float | None = None):
        self.first_step = first_check(total_steps)
        self.num_outputs = num_outputs
        self.recent: deque[Mapping[str, float]] = deque(maxlen=WINDOW)
        self.warned: set[tuple[str, str]] = set()
        self.first_rank = first_rank

    def check(self, step: int, numbers: Mapping[str, float]) -> Iterator[str]:
        """Warnings, each with a remedy, after `step` steps; `numbers` are those of the last step."""
        self.recent.append(numbers)
        if step < self.first_step or len(self.recent) < WINDOW:
            return
        means = {name: sum(row[name] for row in self.recent) / WINDOW for name in numbers}
        yield from self._new(findings(means, self.num_outputs))

    def check_rank(self, step: int, rank: float) -> Iterator[str]:
        """Warnings about the effective rank of the features, after `step` steps."""
        if self.first_rank is None:
            self.first_rank = rank
        elif step >= self.first_step:
            yield from self._new(rank_findings(self.first_rank, rank))

    def _new(self, found: Iterable[Finding]) -> Iterator[str]:
        for kind, term, message in found:
            if (kind, term) not in self.warned:
                self.warned.add((kind, term))
                yield message
