import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from rich.console import Console

from scfs.backbones import fingerprint, load_backbone
from scfs.config import DataSettings
from scfs.data.sources import AnnotatedSource, open_annotated, open_train
from scfs.data.unreadable import show_left_out
from scfs.distributed import choose_device
from scfs.errors import UserError
from scfs.evaluate.own_data import IMAGES, choose_data, own_data
from scfs.evaluate.tables import metrics_table
from scfs.evaluate.target import show_report
from scfs.runs.files import check_new
from scfs.runs.layout import environment, free_path
from scfs.runs.metric import Metric
from scfs.runs.results import Result, record, results_folder, run_of
from scfs.training.cpu import cpu_setup
from scfs.visualize.attend.examples import choose_examples
from scfs.visualize.attend.picture import Panel, save_attention_picture, save_component_picture
from scfs.visualize.attend.scoring import AttentionScore
from scfs.visualize.attend.settings import Attend
from scfs.visualize.attention import Searcher, attend, mean_query
from scfs.visualize.components import component_colours
from scfs.visualize.queries import Example
from scfs.visualize.searchers import build_searcher, short_names

SHOWN = IMAGES._replace(remedy="give --data SOURCE or --images FILE")


class NamedSearcher(NamedTuple):
    """The searcher of a run or of weights, under a title."""

    title: str
    searcher: Searcher


def attend_and_draw(targets: Sequence[str], settings: Attend, console: Console) -> Path | list[Metric]:
    """Draw the attention of runs, or score it: the `scfs attend` command. Returns the picture, or all metrics."""
    device = choose_device(settings.device)
    if settings.names and len(settings.names) != len(targets):
        raise UserError(f"--names gives {len(settings.names)} titles for {len(targets)} runs; give one for each.")
    if settings.out:
        check_new(Path(settings.out))  # before the work, not after it
    with cpu_setup(device):
        data = None if settings.images else choose_data(targets[0], settings.data, console, needs=SHOWN)
        if data is not None and settings.score:
            return _score(targets, data, settings.model_copy(update={"data": data.source}), device, console)
        source = None if data is None else open_train(data.source, classes=data.classes, max_pixels=data.max_pixels)
        examples, problems = choose_examples(source, settings, max_pixels=own_data(targets[0]).max_pixels)
        show_left_out(problems, console)
        searchers = [_open(each, settings, device, console) for each in _compared(targets, settings)]
        path = Path(settings.out) if settings.out else _picture(targets, settings.show)
        _draw(path, examples, searchers, settings)
        console.print(f"picture  {path}")
    return path


class Compared(NamedTuple):
    """A run or weights, its title, and all that are drawn or scored together."""

    target: str
    title: str
    targets: Sequence[str]


def _compared(targets: Sequence[str], settings: Attend) -> list[Compared]:
    titles = settings.names or short_names(targets)
    return [Compared(target, title, targets) for target, title in zip(targets, titles, strict=True)]


def _open(compared: Compared, settings: Attend, device: torch.device, console: Console) -> NamedSearcher:
    target, title, targets = compared
    loaded = load_backbone(target, name=settings.backbone or None, network=settings.network, seed=settings.seed)
    show_report(loaded, console)
    layers = loaded.backbone.layers
    if settings.layers != "auto":
        layers = list(settings.layers)
    elif not settings.score:
        layers = layers[-1:]
    searcher = build_searcher(
        loaded,
        target,
        others=targets,
        layers=layers,
        size=settings.size,
        query_size=settings.query_size,
        device=device,
    )
    about = f"{title}: images at {searcher.side} px, queries at {searcher.query_side} px, {' '.join(searcher.layers)}"
    console.print(about)
    return NamedSearcher(title, searcher)


def _picture(targets: Sequence[str], name: str) -> Path:
    """Where the picture goes: the run's folder, and runs for several runs or for weights alone."""
    run = run_of(targets[0]) if len(targets) == 1 else None
    return free_path(f"attend-{name}", ".png") if run is None else run / f"attend-{name}.png"


def _draw(path: Path, examples: Sequence[Example], searchers: Sequence[NamedSearcher], settings: Attend) -> None:
    if settings.show == "components":
        panels = [panel for named in searchers for panel in _component_panels(named, examples)]
        save_component_picture(path, examples, panels)
        return
    panels = [panel for named in searchers for panel in _attention_panels(named, examples, settings)]
    names = {"jigsaw": [f"tile {i + 1}" for i in range(4)] + ["mean of tiles"], "box": ["attention"]}
    save_attention_picture(
        path, examples, panels, names.get(settings.show) or [f"view {i + 1}" for i in range(settings.views)]
    )


def _attention_panels(named: NamedSearcher, examples: Sequence[Example], settings: Attend) -> list[Panel]:
    """A panel per layer: the attention of each example's queries and, for a jigsaw, of their mean."""
    searcher, found = named.searcher, []
    for example in examples:
        queries = searcher.queries(example.queries)
        if settings.show == "jigsaw":
            queries = {layer: torch.cat([each, mean_query(queries)[layer]]) for layer, each in queries.items()}
        found.append(attend(queries, searcher.keys([example.searched])))
    own = f", {named.title}" if settings.scales == "own" else ""
    return [
        Panel(named.title, layer, [maps[layer][:, 0] for maps in found], f"{layer}{own}") for layer in searcher.layers
    ]


def _component_panels(named: NamedSearcher, examples: Sequence[Example]) -> list[Panel]:
    """A panel per layer, with one scale over all examples."""
    keys = [named.searcher.keys([example.image]) for example in examples]
    return [
        Panel(named.title, layer, component_colours([each[layer] for each in keys])) for layer in named.searcher.layers
    ]


def _score(
    targets: Sequence[str], data: DataSettings, settings: Attend, device: torch.device, console: Console
) -> list[Metric]:
    source = _with_masks(data)
    return [
        metric
        for each in _compared(targets, settings)
        for metric in _score_one(each, source, settings, device, console)
    ]


def _with_masks(data: DataSettings) -> AnnotatedSource:
    _, val = open_annotated(data.source, max_pixels=data.max_pixels)
    if not val.has_masks:
        raise UserError(
            f"The objects of {data.source} have no masks to score attention by; give scenes or coco:FOLDER."
        )
    return val


def _score_one(
    compared: Compared, source: AnnotatedSource, settings: Attend, device: torch.device, console: Console
) -> list[Metric]:
    target = compared.target
    start, folder = time.perf_counter(), results_folder(target, console)
    named = _open(compared, settings, device, console)
    searcher = named.searcher
    score = AttentionScore(searcher, count=settings.views, area=settings.scale, seed=settings.seed)
    show_left_out(score.read(source, console), console)
    rows, counts = score.rows(), score.num_queries()
    about = ", ".join(f"{count} {kind} queries" for kind, count in counts.items())
    console.print(f"Attention of {named.title} on {settings.data}: {about}")
    console.print(metrics_table(rows))
    metrics = [metric for row in rows.values() for metric in row]
    sizes = {"size": searcher.side, "query_size": searcher.query_side, "layers": searcher.layers}
    known = settings.model_dump(mode="json") | sizes | {"target": target, "weights": fingerprint(searcher.backbone)}
    result = Result(
        "attend",
        metrics,
        data=settings.data,
        protocol=f"{searcher.side} px, queries of {settings.scale:g} at {searcher.query_side} px",
        settings=known,
        details={"queries": dict(counts)},
        seconds=time.perf_counter() - start,
        environment=environment(device),
    )
    record(folder, result, console)
    return metrics
