"""Which trained classifier `scfs predict` uses: the newest linear probe or fine-tuned network of a run."""

import shlex
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from scfs.backbones import Backbone, fingerprint, load_backbone
from scfs.errors import UserError
from scfs.evaluate.linear.probe_file import Probe, probe_files, read_probe
from scfs.recipe import read_toml
from scfs.runs.layout import LAST, SETTINGS
from scfs.runs.results import run_of


class TrainedClassifier(NamedTuple):
    """A backbone and the classifier on its features, from a linear probe or from fine-tuning."""

    path: Path
    backbone: Backbone
    probe: Probe
    others: list[Path]  # of the same weights, which could have been used instead

    def __str__(self) -> str:
        when = datetime.fromtimestamp(self.path.stat().st_mtime).astimezone()
        text = f"Classifier: {_kind(self.path)} {self.path} of {when:%Y-%m-%d %H:%M}, {len(self.probe.classes)} classes"
        if not self.others:
            return f"{text}."
        return f"{text}; to use another, give it in place of the run: {', '.join(map(str, self.others))}."


def find_classifier(target: str, *, network: str = "teacher") -> TrainedClassifier:
    """The newest classifier trained on the weights of a run or checkpoint, by file time; or the one that is given."""
    if (folder := run_of(target)) is None:
        raise UserError(f"{target} is not a run folder; give one that scfs linear has trained a probe for.")
    given = Path(target).expanduser()
    is_probe = given in probe_files(folder)
    backbone = _probed(given, folder, network) if is_probe else load_backbone(target, network=network).backbone
    weights = fingerprint(backbone)
    candidates = [given] if is_probe else [folder / LAST, *_fine_tuned(folder), *probe_files(folder)]
    fitting = [path for path in candidates if path.exists() and _weights_of(path, folder) == weights]
    if not fitting:
        num_others = sum(path in probe_files(folder) for path in candidates)
        known = f"; {num_others} were trained on other weights (another checkpoint or --network)" if num_others else ""
        raise UserError(
            f"{folder} has no trained probe{known}; train one with: scfs linear {shlex.quote(str(folder))} "
            "--data FOLDER."
        )
    *others, path = sorted(fitting, key=lambda path: path.stat().st_mtime_ns)  # stable: of equal times the last
    if path.parent != folder:
        backbone = load_backbone(str(path)).backbone
    probe = read_probe(path)
    if probe is None or probe.weights != fingerprint(backbone):
        raise UserError(f"{path} does not hold the classifier of its own network; use another copy of it.")
    return TrainedClassifier(path, backbone, probe, others)


def _probed(probe: Path, folder: Path, network: str) -> Backbone:
    """The backbone that a probe was trained on: of the run's last checkpoint, or of one that was kept."""
    weights = _weights_of(probe, folder)
    for checkpoint in sorted(folder.glob("epoch_*.pt")):
        backbone = load_backbone(str(checkpoint), network=network).backbone
        if fingerprint(backbone) == weights:
            return backbone
    return load_backbone(str(folder), network=network).backbone


def _fine_tuned(folder: Path) -> list[Path]:
    """Networks that were fine-tuned from the weights of a run, in folders inside it."""
    return sorted(path for path in folder.glob(f"*/{LAST}") if (path.parent / SETTINGS).exists())


def _weights_of(path: Path, folder: Path) -> str:
    """Fingerprint of the weights that a classifier was trained on or fine-tuned from; empty if there is none."""
    if path.parent != folder:
        tuned = read_toml(path.parent / SETTINGS).get("finetune", {})
        return str(tuned.get("weights", "")) if tuned.get("start", "weights") == "weights" else ""
    probe = read_probe(path)
    return "" if probe is None else probe.weights


def _kind(path: Path) -> str:
    return "fine-tuned network" if path.name == LAST else "linear probe"
