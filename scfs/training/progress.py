import time
from collections.abc import Mapping
from datetime import timedelta

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn
from rich.text import Text

from scfs.training.notebook import NotebookLine, in_notebook

PLAIN_SECONDS = 10.0  # between lines where there is neither a terminal nor a notebook
NOTEBOOK_SECONDS = 0.25  # between updates of the line in a notebook


class ProgressDisplay:
    """A live bar with the latest numbers in a terminal, a line in a notebook; elsewhere a line now and then."""

    def __init__(self, console: Console, total_steps: int, first_step: int):
        self.console, self.total_steps, self.step = console, total_steps, first_step
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TextColumn("{task.percentage:.0f} %"),
            expand=True,
        )
        self.task = self.bar.add_task("", total=total_steps, completed=first_step)
        self.live = Live(self.bar, console=console, refresh_per_second=4)
        has_line = in_notebook() and not console.is_terminal and not console.quiet
        self.notebook_line = NotebookLine() if has_line else None
        self.pinned: dict[str, str] = {}
        self.seconds_per_step = 0.0
        self._started = time.monotonic()
        self._printed = float("-inf")

    def __enter__(self) -> "ProgressDisplay":
        if self.console.is_terminal:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.console.is_terminal:
            self.live.stop()

    def start_clock(self) -> None:
        """The next step starts now: the time of evaluations and checkpoints before it does not count."""
        self._started = time.monotonic()

    def advance(self, step: int) -> float:
        """Record a finished step; returns the recent seconds per step."""
        seconds = time.monotonic() - self._started
        self.seconds_per_step = 0.9 * self.seconds_per_step + 0.1 * seconds if self.seconds_per_step else seconds
        self.step = step
        return self.seconds_per_step

    def pin(self, name: str, text: str) -> None:
        """Show this with the numbers of every step from now on."""
        self.pinned[name] = text

    def show(self, heading: str, numbers: Mapping[str, float], *, final: bool = False) -> None:
        """Show where the run is, its latest numbers and the time left; `final` after the last step's evaluation."""
        left = timedelta(seconds=round((self.total_steps - self.step) * self.seconds_per_step))
        parts = {name: f"{value:.3g}" for name, value in numbers.items()} | self.pinned | {"left": str(left)}
        line = "  ".join(f"{name} {text}" for name, text in parts.items())
        if self.console.is_terminal:
            self.bar.update(self.task, completed=self.step, description=heading)
            self.live.update(Group(self.bar, Text(line, style="dim")))
        elif self.notebook_line:
            if final or self._due(NOTEBOOK_SECONDS):
                self.notebook_line.update(f"{self.step / self.total_steps:.0%}  {heading}  {line}")
        elif final or (self.step < self.total_steps and self._due(PLAIN_SECONDS)):
            self.console.print(f"{heading}  {line}")

    def _due(self, seconds: float) -> bool:
        """Whether that much time has passed since this last returned true."""
        now = time.monotonic()
        if due := now - self._printed > seconds:
            self._printed = now
        return due

    def note(self, message: str, style: str = "") -> None:
        """Print a message above the bar."""
        self.console.print(message, style=style)
