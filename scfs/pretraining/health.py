import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping

WINDOW = 30  # steps to average over
PATIENCE = 0.1  # fraction of the run before the first check: every run starts near ln K

FLAT = 0.8  # fraction of a head's outputs that the teacher uses, exp(entropy) / K; a third at random weights and 0.04
CERTAIN = 0.02  # entropy of a head, as a fraction of ln K
MIN_SPREAD = 0.02


class Health:
    """Detects collapse from the loss, entropy and spread of every head and the spread of features.

    Warns once about each kind. num_outputs: K of the head of a term, None if it has no softmax.
    """

    def __init__(self, total_steps: int, num_outputs: Callable[[str], int | None]):
        self.first_step = max(WINDOW, int(total_steps * PATIENCE))
        self.num_outputs = num_outputs
        self.recent: deque[Mapping[str, float]] = deque(maxlen=WINDOW)
        self.warned: set[str] = set()

    def check(self, step: int, numbers: Mapping[str, float]) -> Iterator[str]:
        """Warnings, each with a remedy, after `step` steps; `numbers` are those of the last step."""
        self.recent.append(numbers)
        if step < self.first_step or len(self.recent) < WINDOW:
            return
        means = {name: sum(row[name] for row in self.recent) / WINDOW for name in numbers}
        for kind, message in self._findings(means):
            if kind not in self.warned:
                self.warned.add(kind)
                yield message

    def _findings(self, means: Mapping[str, float]) -> Iterator[tuple[str, str]]:
        for name in means:
            kind, _, term = name.partition("/")
            if kind == "loss" and term and (outputs := self.num_outputs(term)) is not None:
                yield from self._softmax_findings(term, outputs, means)
            if kind == "spread" and means[name] < MIN_SPREAD:
                yield (
                    name,
                    f"the head of '{term}' gives nearly the same output for all images (spread {means[name]:.3f}) and "
                    "teaches nothing. Lower optim.lr or lengthen optim.warmup_epochs; with objective dino lower "
                    "method.teacher_temp, or set method.batch_norm = true.",
                )
        if means["feature_spread"] < MIN_SPREAD:
            yield (
                "collapse",
                f"the features of all images are nearly the same (spread {means['feature_spread']:.3f}): the network "
                "is collapsing. Lower optim.lr, lengthen optim.warmup_epochs or, with method.targets = 'teacher', "
                "raise method.momentum.",
            )

    def _softmax_findings(self, term: str, outputs: int, means: Mapping[str, float]) -> Iterator[tuple[str, str]]:
        log_k, entropy = math.log(outputs), means[f"entropy/{term}"]
        used = math.exp((entropy - 1) * log_k)
        if used > FLAT:
            yield (
                f"flat/{term}",
                f"the head of '{term}' is flat: the teacher spreads its probability over {used:.0%} of {outputs} "
                f"outputs (entropy {entropy:.3f} of ln K) and teaches nothing. Lower method.teacher_temp; for the data "
                "head lower method.out_dim or set method.batch_norm = true; or choose method.objective = 'info-nce'.",
            )
        if entropy < CERTAIN and means[f"loss/{term}"] < CERTAIN * log_k:
            yield (
                f"constant/{term}",
                f"the loss of '{term}' is almost 0 ({means[f'loss/{term}']:.3f}): one output wins for every image. "
                "Raise method.teacher_temp, or lower method.center_momentum so that the center follows faster.",
            )
