from collections import deque
from collections.abc import Iterator, Mapping

WINDOW = 30  # steps whose mean is judged
PATIENCE = 0.1  # share of the run before anything is judged: every run starts near ln K

UNIFORM_ENTROPY = 0.98  # of ln K
UNIFORM_LOSS = 0.02  # distance from ln K, as a share of it
MIN_SPREAD = 0.02


class Health:
    """Is it learning? Watches the first loss and the vitals, and warns once of each way to collapse.

    `ln_k` is that loss when the teacher finds all outputs alike.
    """

    def __init__(self, total_steps: int, ln_k: float):
        self.first_step = max(WINDOW, int(total_steps * PATIENCE))
        self.ln_k = ln_k
        self.recent: deque[tuple[float, float, float]] = deque(maxlen=WINDOW)
        self.warned: set[str] = set()

    def check(self, step: int, numbers: Mapping[str, float]) -> Iterator[str]:
        """Warnings, each with a remedy, after `step` steps; `numbers` are those of the last one."""
        first_loss = next(value for name, value in numbers.items() if name.startswith("loss/"))
        self.recent.append((first_loss, numbers["teacher_entropy"], numbers["feature_spread"]))
        if step < self.first_step or len(self.recent) < WINDOW:
            return
        for kind, message in self._findings():
            if kind not in self.warned:
                self.warned.add(kind)
                yield message

    def _findings(self) -> Iterator[tuple[str, str]]:
        loss, entropy, spread = (sum(column) / WINDOW for column in zip(*self.recent, strict=True))
        if abs(loss - self.ln_k) < UNIFORM_LOSS * self.ln_k and entropy > UNIFORM_ENTROPY:
            yield (
                "uniform",
                f"the loss sits at ln K = {self.ln_k:.2f}: the teacher finds all outputs alike and teaches nothing. "
                "Lower method.teacher_temp (0.04) or method.out_dim, or set method.batch_norm = true.",
            )
        if spread < MIN_SPREAD:
            yield (
                "collapse",
                f"the features of all images are nearly the same (spread {spread:.3f}): the network is collapsing. "
                "Lower optim.lr, lengthen optim.warmup_epochs, or raise method.momentum.",
            )
        if loss < UNIFORM_LOSS * self.ln_k:
            yield (
                "constant",
                f"the loss is almost 0 ({loss:.3f}): one output wins for every image. "
                "Raise method.teacher_temp, or lower method.center_momentum so that the center follows faster.",
            )
