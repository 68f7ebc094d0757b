from pathlib import Path

from rich.console import Console

from scfs.data.annotations import AnnotatedSubset
from scfs.data.sources import open_annotated
from scfs.distributed import choose_device
from scfs.errors import UserError
from scfs.evaluate.detect.detector_file import read_detector
from scfs.evaluate.detect.pictures import draw_scored
from scfs.evaluate.detect.scoring import find_objects
from scfs.recipe import read_toml
from scfs.runs.files import write_text
from scfs.runs.layout import LAST, REPORT, SETTINGS, read_metrics
from scfs.runs.results import read_results
from scfs.visualize.page import Section, render_page
from scfs.visualize.sections import curve_sections, result_sections, setting_section

NUM_IMAGES = 6
TASKS = ("finetune", "detect")  # that train a network with labels, in a folder of its own


def task_of(run: Path) -> str:
    """The command that trained the network of a folder with labels; empty for pre-training."""
    values = read_toml(run / SETTINGS)
    return next((task for task in TASKS if task in values), "")


def report_task(run: Path, task: str, data: str, console: Console) -> Path:
    """Write an HTML page about a network that was trained with labels: results, curves, and what a detector finds."""
    if not (run / LAST).exists():
        raise UserError(f"{run} is not finished; run the same scfs {task} again, which resumes it, and then report.")
    folder, settings = run / REPORT, read_toml(run / SETTINGS)
    sections = [*result_sections(run), *curve_sections(folder, read_metrics(run))]
    if task == "detect":
        sections.append(_draw_detections(run, folder, data or settings[task]["data"], console))
    page = folder / "index.html"
    folder.mkdir(parents=True, exist_ok=True)
    content = render_page(f"{task.capitalize()} {run.name}", _summary(run), [*sections, setting_section(settings)])
    write_text(page, content)
    console.print(f"report          {page}", highlight=False, soft_wrap=True)
    return page


def _summary(run: Path) -> str:
    results = read_results(run)
    return ", ".join(map(str, results[-1].metrics[:3])) if results else ""


def _draw_detections(run: Path, folder: Path, data: str, console: Console) -> Section:
    """Ground truth and predictions of the first val images."""
    trained, device = read_detector(run), choose_device("auto")
    _, val = open_annotated(data)
    some = AnnotatedSubset(val, range(min(NUM_IMAGES, len(val))))
    found = find_objects(trained.detector.to(device), some, workers=0, device=device, console=console)
    draw_scored(folder / "detections.png", AnnotatedSubset(some, found.indices), found.detections, NUM_IMAGES)
    text = "Each row: a val image with its objects, then with those that the detector found."
    return Section("Detections", text, "detections.png")
