import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from scfs.runs.files import check_new
from scfs.runs.layout import environment, free_path
from scfs.runs.metric import Metric
from scfs.runs.results import Result, record, results_folder
from scfs.visualize.overaug.settings import Overaug


class Saver:
    """Saves results and the picture in the run folder; of weights alone, the picture in runs."""

    def __init__(self, target: str, name: str, settings: Overaug, console: Console):
        """Refuses to overwrite the file of the settings, before the work that produces it."""
        self.target, self.name, self.settings, self.console = target, name, settings, console
        self.folder = results_folder(target, console)
        self.out = Path(settings.out) if settings.out else None
        if self.out is not None:
            check_new(self.out, make_parents=True)

    def record(
        self,
        metrics: Sequence[Metric],
        data: str,
        protocol: str,
        *,
        start: float,
        device: torch.device,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        """Record what was measured since `start` (time.perf_counter)."""
        result = Result(
            self.name.replace("_", " "),
            metrics,
            data=data,
            protocol=protocol,
            settings=self.settings.model_dump(mode="json") | {"target": self.target, "data": data},
            details=details or {},
            seconds=time.perf_counter() - start,
            environment=environment(device),
        )
        record(self.folder, result, self.console)

    def draw(self, save: Callable[[Path], None]) -> Path:
        """Draw the picture where the settings say, and print where; returns its path."""
        own = free_path(self.name, ".png") if self.folder is None else self.folder / f"{self.name}.png"
        path = self.out or own
        save(path)
        self.console.print(f"picture  {path}")
        return path
