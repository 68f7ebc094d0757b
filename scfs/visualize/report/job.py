from collections.abc import Sequence
from pathlib import Path

from PIL import Image
from rich.console import Console

from scfs.config import Config
from scfs.data.paths import readable
from scfs.data.skipped import skipped_by_suffix
from scfs.data.sources import Source, open_train
from scfs.data.unreadable import show_left_out
from scfs.distributed import choose_device
from scfs.errors import UserError
from scfs.runs.files import check_new, write_text
from scfs.runs.layout import LAST, REPORT, free_path
from scfs.visualize.pictures import save_attention, save_views
from scfs.visualize.report.evidence import Evidence, gather
from scfs.visualize.report.markup import Section
from scfs.visualize.report.page import render_page
from scfs.visualize.report.run import ReportedRun, read_run, run_names
from scfs.visualize.report.sections.attention import attention_section
from scfs.visualize.report.sections.commands import command_section
from scfs.visualize.report.sections.components import component_section
from scfs.visualize.report.sections.confusion import confusion_section
from scfs.visualize.report.sections.curves import curve_section
from scfs.visualize.report.sections.detections import detection_section
from scfs.visualize.report.sections.embedding_map import map_section
from scfs.visualize.report.sections.layers import layer_section
from scfs.visualize.report.sections.neighbours import neighbour_section
from scfs.visualize.report.sections.results import result_section
from scfs.visualize.report.sections.settings import setting_section
from scfs.visualize.report.sections.summary import summary
from scfs.visualize.report.sections.views import draw_views, view_section
from scfs.visualize.settings import Report


def report(folders: Sequence[Path], settings: Report, console: Console) -> Path:
    """Write a page about one run or several side by side: the `scfs report` command. Returns the page.

    The page is one file that needs no other. Of one run, the example views and the attention are also written as
    pictures next to it.
    """
    runs = [read_run(folder, name) for folder, name in zip(folders, run_names(folders), strict=True)]
    page = _page_path(runs, settings)
    pretrained = [run for run in runs if run.config is not None] if settings.pictures else []
    source = _open_images(pretrained[0], settings.data) if pretrained else None
    evidence = _gather(pretrained, source, settings.data, console) if source is not None else None
    is_own = not settings.out and len(runs) == 1
    sections = _sections(runs, evidence, settings, console, pictures=page.parent if is_own else None)
    title = f"Run {runs[0].name}" if len(runs) == 1 else f"Runs {', '.join(run.name for run in runs)}"
    page.parent.mkdir(parents=True, exist_ok=True)
    facts = _photo_facts(pretrained[0], source, settings) if source is not None else {}
    write_text(page, readable(render_page(title, summary(runs, facts), sections)))
    _print(console, runs, page, with_pictures=is_own and evidence is not None)
    show_left_out(evidence.photos.unreadable if evidence else [], console)
    return page


def _page_path(runs: Sequence[ReportedRun], settings: Report) -> Path:
    """Where the page goes: a report of one run replaces its earlier one, any other file must be new."""
    if settings.out:
        check_new(path := Path(settings.out))
        return path
    return runs[0].folder / REPORT / "index.html" if len(runs) == 1 else free_path("report", ".html")


def _open_images(run: ReportedRun, moved_to: str) -> Source:
    """The images that a run was trained on.

    Without them there is no page, unless it is asked for: it would lack what tells most, and replace a complete one.
    """
    assert run.config is not None
    data = run.config.data
    try:
        return open_train(moved_to or data.source, classes=data.classes, max_pixels=data.max_pixels)
    except UserError as error:
        if moved_to:
            raise
        reason = str(error).partition(";")[0].rstrip(".")
        raise UserError(
            f"{reason}; if the images of {run.folder} have moved, add --data and where they are now; if they are gone, "
            "--pictures false."
        ) from None


def _gather(runs: Sequence[ReportedRun], source: Source, moved_to: str, console: Console) -> Evidence:
    configs = [_with_source(run.config, moved_to) for run in runs if run.config is not None]
    return gather(runs, configs, source, choose_device("auto"), console)


def _with_source(config: Config, moved_to: str) -> Config:
    data = config.data.model_copy(update={"source": moved_to}) if moved_to else config.data
    return config.model_copy(update={"data": data})


def _photo_facts(run: ReportedRun, source: Source, settings: Report) -> dict[str, str]:
    """What is known of the photos of a run."""
    skipped = skipped_by_suffix(settings.data or run.data.source)
    listed = ", ".join(f"{count:,} {suffix}" for suffix, count in skipped.most_common())
    classes = f"{len(source.classes):,} classes" if source.classes else "no labels"
    return {"photos": f"{len(source):,} ({classes})", "files skipped by suffix": listed or "none"}


def _sections(
    runs: Sequence[ReportedRun], evidence: Evidence | None, settings: Report, console: Console, pictures: Path | None
) -> list[Section]:
    """The parts of the page, what tells most first; pictures: the folder for those that are files of their own."""
    has_labels = evidence is not None and bool(evidence.photos.source.classes)
    detectors = [run for run in runs if run.task == "detect" and settings.pictures and (run.folder / LAST).exists()]
    seen = [neighbour_section(evidence), map_section(evidence)] if evidence else []
    detections = [detection_section(run, settings.data, console) for run in detectors]
    results = [result_section(runs), confusion_section(runs)]
    attention = [attention_section(evidence)] if evidence else []
    maps = [*_views(runs, evidence, pictures), component_section(evidence), layer_section(evidence)] if evidence else []
    rest = [command_section(runs, has_labels=has_labels), curve_section(runs), *maps, setting_section(runs)]
    found = [*seen, *detections, *results, *attention, *rest]
    return [section for section in found if section is not None]


def _views(runs: Sequence[ReportedRun], evidence: Evidence, pictures: Path | None) -> list[Section]:
    """The views of the first run; several runs mostly share them."""
    config = next(run.config for run in runs if run.config is not None)
    images: list[Image.Image] = [found.image for found in evidence.before.searched]
    views = draw_views(images, config)
    if pictures is not None:
        save_views(pictures / "views.png", images, views)
        save_attention(pictures / "attention.png", evidence.trained[0].searched)
    return [view_section(images, views)]


def _print(console: Console, runs: Sequence[ReportedRun], page: Path, *, with_pictures: bool) -> None:
    console.print("")
    for run in runs:
        name = f"{run.name}: " if len(runs) > 1 else ""
        console.print(f"{name}{run.verdict.headline}", style="bold")
        for reason in run.verdict.reasons:
            console.print(reason)
    drawn = {"example views": page.parent / "views.png", "attention maps": page.parent / "attention.png"}
    lines = {
        **({"run folder": runs[0].folder} if len(runs) == 1 else {}),
        **(drawn if with_pictures else {}),
        "report": page,
    }
    for key, path in lines.items():
        console.print(f"{key:15} {path}")
