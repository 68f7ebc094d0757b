from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from scfs.errors import UserError

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


class Unreadables:
    """Counts the images of an epoch that could not be read, names each once, and stops a run that has too many."""

    def __init__(self, folder: Path, num_images: int, max_share: float):
        self.path, self.num_images, self.max_share = folder / "unreadable.txt", num_images, max_share
        self.named = set(self.path.read_text(encoding="utf-8").splitlines()) if self.path.exists() else set[str]()
        self.epoch, self.count = 0, 0

    def check(self, epoch: int, names: Sequence[str], total: int) -> Iterator[str]:
        """Lines to show: `names` are those of this process, `total` the number in all processes."""
        self.count = total + (self.count if epoch == self.epoch else 0)
        self.epoch = epoch
        for name in sorted({*names} - self.named):
            self.named.add(name)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(name + "\n")
            yield f"Unreadable, replaced by the next image: {name}"
        if self.count > self.max_share * self.num_images:
            raise UserError(
                f"{self.count} of {self.num_images} images cannot be read, more than data.max_unreadable "
                f"{self.max_share:g}; they are named in {self.path}: repair or remove them, or raise the setting."
            )
