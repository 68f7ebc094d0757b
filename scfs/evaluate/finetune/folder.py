"""Folders of fine-tuned networks. They are run folders too: whatever reads a run's backbone reads theirs."""

import itertools
from pathlib import Path
from typing import Any

from scfs.backbones import Backbone, fingerprint
from scfs.errors import UserError
from scfs.evaluate.finetune.classifier import Classifier
from scfs.evaluate.linear.probe_file import NAME as PROBE
from scfs.evaluate.linear.probe_file import Probe
from scfs.recipe import read_toml
from scfs.runs import checkpoint, layout
from scfs.runs.backbone_record import FINE_TUNED, as_content
from scfs.runs.files import read_json, write_json
from scfs.runs.results import run_of
from scfs.training.resumable import FREE

GRID = "grid.json"


def open_folder(target: str, out: str, settings: dict[str, Any]) -> Path:
    """A new folder, or one where the same work was started and not finished; finished ones are left alone.

    If `out` is empty: finetune, finetune-2, ... in the target's run folder, or under runs.
    """
    parent = run_of(target) or Path("runs")
    numbered = (parent / ("finetune" if number == 1 else f"finetune-{number}") for number in itertools.count(1))
    for folder in [Path(out)] if out else numbered:
        if not folder.exists():
            try:
                folder.mkdir(parents=True)
            except OSError as error:
                raise UserError(f"Cannot create {folder}: {error.strerror}; choose another --out.") from None
            layout.write_settings(folder, {"finetune": settings})
            return folder
        if not (folder / layout.LAST).exists() and _settings(folder) == _without_free(settings):
            return folder
    raise UserError(f"{out} exists and does not hold the same unfinished work; choose another --out.")


def _settings(folder: Path) -> dict[str, Any]:
    path = folder / layout.SETTINGS
    return _without_free(read_toml(path).get("finetune", {})) if path.exists() else {}


def _without_free(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name not in FREE}


def read_grid(folder: Path) -> dict[str, float | None]:
    """Scores on held-out images of each pair of rate and weight decay so far, by name; None: it diverged."""
    return read_json(folder / GRID, {})


def write_grid(folder: Path, scores: dict[str, float | None]) -> None:
    """Save these scores."""
    write_json(folder / GRID, scores)


def save_classifier(folder: Path, classifier: Classifier, classes: tuple[str, ...], size: int) -> Path:
    """Save the network as a checkpoint with a backbone, and a probe for `scfs predict`."""
    backbone: Backbone = classifier.backbone
    head = {name: value.detach().cpu() for name, value in classifier.head.state_dict().items()}
    probe = Probe(head["weight"], head["bias"], list(classes), size, blocks=0, weights=fingerprint(backbone))
    records = {FINE_TUNED: backbone.cpu().record(size)}
    checkpoint.save(folder / layout.LAST, {**as_content(records), PROBE: probe._asdict()})
    return folder / layout.LAST
