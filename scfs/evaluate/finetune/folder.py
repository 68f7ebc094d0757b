from pathlib import Path

from scfs.backbones import Backbone, fingerprint
from scfs.evaluate.finetune.classifier import Classifier
from scfs.evaluate.linear.probe_file import NAME as PROBE
from scfs.evaluate.linear.probe_file import Probe
from scfs.runs import checkpoint, layout
from scfs.runs.backbone_record import FINE_TUNED, as_content
from scfs.runs.files import read_json, write_json

GRID = "grid.json"


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
