from collections import deque
from collections.abc import Iterator, Mapping

WINDOW = 30  # steps whose mean is judged
PATIENCE = 0.1  # share of the run before anything is judged: every run starts near ln K

UNIFORM_ENTROPY = 0.98  # of ln K
UNIFORM_LOSS = 0.02  # distance from ln K, as a share of it
MIN_SPREAD = 0.02


class Health:
    """Is it learning? Watches the loss and the vitals, and warns once of each way to collapse.

    `uniform_loss` is the loss when the teacher finds all outputs alike: ln K, summed over the heads.
    """

    def __init__(self, total_steps: int, uniform_loss: float):
        self.first_step = max(WINDOW, int(total_steps * PATIENCE))
        self.uniform_loss = uniform_loss
        self.recent: deque[tuple[float, float, float]] = deque(maxlen=WINDOW)
        self.warned: set[str] = set()

    def check(self, step: int, numbers: Mapping[str, float]) -> Iterator[str]:
        """Warnings, each with a remedy, after `step` steps; `numbers` are those of the last one."""
        self.recent.append((numbers["loss"], numbers["teacher_entropy"], numbers["feature_spread"]))
        if step < self.first_step or len(self.recent) < WINDOW:
            return
        for kind, message in self._findings():
            if kind not in self.warned:
                self.warned.add(kind)
                yield message

    def _findings(self) -> Iterator[tuple[str, str]]:
        loss, entropy, spread = (sum(column) / WINDOW for column in zip(*self.recent, strict=True))
        if abs(loss - self.uniform_loss) < UNIFORM_LOSS * self.uniform_loss and entropy > UNIFORM_ENTROPY:
            yield (
                "uniform",
                f"the loss sits at ln K ({self.uniform_loss:.2f} over all heads): "
                "the teacher finds all outputs alike and teaches nothing. "
                "Lower method.teacher_temp (0.04) or method.out_dim, or set method.batch_norm = true.",
            )
        if spread < MIN_SPREAD:
            yield (
                "collapse",
                f"the features of all images are nearly the same (spread {spread:.3f}): the network is collapsing. "
                "Lower optim.lr, lengthen optim.warmup_epochs, or raise method.momentum.",
            )
        if loss < UNIFORM_LOSS * self.uniform_loss:
            yield (
                "constant",
                f"the loss is almost 0 ({loss:.3f}): one output wins for every image. "
                "Raise method.teacher_temp, or lower method.center_momentum so that the center follows faster.",
            )
