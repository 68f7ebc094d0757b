"""What a detector finds, beside what is there."""

import tempfile
from pathlib import Path

from PIL import Image
from rich.console import Console

from scfs.data.annotations import AnnotatedSubset
from scfs.data.sources import open_annotated
from scfs.distributed import choose_device
from scfs.evaluate.detect.detector_file import read_detector
from scfs.evaluate.detect.pictures import draw_scored
from scfs.evaluate.detect.scoring import find_objects
from scfs.extras import check_extra
from scfs.visualize.features import sample_indices
from scfs.visualize.report.markup import Section, tag
from scfs.visualize.report.run import ReportedRun
from scfs.visualize.report.thumbnails import picture

NUM_IMAGES = 6


def detection_section(run: ReportedRun, data: str, console: Console) -> Section | None:
    """Ground truth and predictions of val images, evenly spaced; None if none of them can be read."""
    trained, device = read_detector(run.folder), choose_device("auto")
    if trained.spec.has_masks:
        check_extra("detect", "A detector of masks")
    _, val = open_annotated(data or run.data.source, max_pixels=run.data.max_pixels)
    some = AnnotatedSubset(val, sample_indices(len(val), NUM_IMAGES))
    found = find_objects(trained.detector.to(device), some, workers=0, device=device, console=console)
    if not found.indices:
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "detections.png"
        draw_scored(path, AnnotatedSubset(some, found.indices), found.detections, NUM_IMAGES)
        with Image.open(path) as drawn:
            content = tag("figure", picture(drawn, "ground truth and predictions"))
    return Section("Detections", content, "Val images with their objects, then with those that the detector found.")
