import csv
import io
from pathlib import Path

from rich.console import Console

from scfs.backbones import fingerprint, load_backbone
from scfs.data.paths import readable
from scfs.data.sources import open_train
from scfs.distributed import choose_device, is_rank_zero, process_group
from scfs.errors import UserError
from scfs.evaluate.features import extract_with_progress
from scfs.evaluate.linear.features import ProbeFeatures
from scfs.evaluate.linear.probe_file import load_probe
from scfs.evaluate.settings import Predict
from scfs.runs.files import check_new, write_new
from scfs.runs.results import run_of
from scfs.training.cpu import cpu_setup

SHOWN = 20


def predict(run: str, images: str, out: Path | None, settings: Predict, console: Console) -> None:
    """Predict the class of each image with a run's trained probe: the `scfs predict` command."""
    if (folder := run_of(run)) is None:
        raise UserError(f"{run} is not a run folder; give one that scfs linear has trained a probe for.")
    if out is not None:
        check_new(out)
    device = choose_device(settings.device)
    with process_group(device), cpu_setup(device):
        source = open_train(images)
        backbone = load_backbone(run, network=settings.network).backbone
        probe = load_probe(folder, fingerprint(backbone))
        backbone = backbone.to(device)
        [found] = extract_with_progress(
            ProbeFeatures(backbone, probe.blocks).eval(),
            [source],
            size=probe.size,
            batch_size=settings.batch_size,
            workers=settings.workers,
            device=device,
            console=console,
        )
    probabilities, classes = probe(found.labelled.features).max(dim=1)
    rows = [
        (readable(source.name(index)), readable(probe.classes[label]), f"{probability:.3f}")
        for index, label, probability in zip(found.indices, classes.tolist(), probabilities.tolist(), strict=True)
    ]
    if not is_rank_zero():
        return
    for name, label, probability in rows[:SHOWN]:
        console.print(f"{label}  {probability}  {name}", highlight=False, soft_wrap=True, markup=False)
    if len(rows) > SHOWN and out is None:
        console.print(f"... and {len(rows) - SHOWN} more; give OUT.csv to write them all.", highlight=False)
    if out is not None:
        text = io.StringIO()
        csv.writer(text).writerows([("image", "class", "probability"), *rows])
        write_new(out, lambda file: file.write(text.getvalue().encode()))
        console.print(f"{len(rows)} images in {out}", highlight=False, soft_wrap=True)
