import html
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from scfs.backbones import load_backbone
from scfs.config import Config
from scfs.data.loader import readable_image
from scfs.data.sources import open_train
from scfs.data.views import MultiCrop
from scfs.errors import UserError
from scfs.recipe import check, read_toml
from scfs.runs.layout import SETTINGS, read_metrics
from scfs.visualize.pictures import save_attention, save_curves, save_views

NUM_IMAGES = 6
PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{title}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; color: #222 }}
img {{ max-width: 100% }} table {{ border-collapse: collapse; font-size: 13px }}
td {{ border-bottom: 1px solid #ddd; padding: .15rem .8rem .15rem 0 }} .score {{ font-size: 1.6rem }}
</style>
<h1>{title}</h1>
<p class="score">{score}</p>
<h2>Curves</h2><img src="curves.png" alt="losses, health and k-NN over the steps">
<h2>Example views</h2><p>Each row: an image with the places of its views, its two global views, its local views.</p>
<img src="views.png" alt="example views">
<h2>Attention</h2><p>Where two queries of each image find themselves, at each search layer (bright: alike).</p>
<img src="attention.png" alt="attention maps">
<h2>Settings</h2><table>{settings}</table>
</html>
"""


class Summary(NamedTuple):
    """k-NN top-1 of a run's first and last score, as shares; None if it was never scored."""

    before: float | None
    after: float | None

    def __str__(self) -> str:
        if self.before is None or self.after is None:
            return "No k-NN was computed."
        gain = 100 * (self.after - self.before)
        return f"k-NN top-1: {self.before:.1%} at the start, {self.after:.1%} after training ({gain:+.1f} points)"


def report(run: Path, console: Console) -> Path:
    """Pictures and a page of what a run learned: the `scfs report` command. Returns the page."""
    if not (run / SETTINGS).is_file():
        raise UserError(f"{run} is not a run folder (it has no {SETTINGS}).")
    values = read_toml(run / SETTINGS)
    if "finetune" in values:
        raise UserError(f"{run} was trained with labels; a report is of a pre-training run: give that folder.")
    config = check(Config, values)
    loaded = load_backbone(str(run))
    rows = read_metrics(run)
    source = open_train(config.data.source, classes=config.data.classes, max_pixels=config.data.max_pixels)
    images = [readable_image(source, i)[0] for i in range(min(NUM_IMAGES, len(source)))]
    folder = run / "report"
    paths = {name: folder / name for name in ("views.png", "attention.png", "curves.png", "index.html")}
    save_views(paths["views.png"], images, MultiCrop(**config.crops | {"colours": "loader"}), config.seed)
    save_attention(
        paths["attention.png"],
        images,
        loaded.backbone,
        size=config.views.global_size,
        query_size=config.views.local_size if config.num_local_views else config.views.global_size,
        seed=config.seed,
    )
    save_curves(paths["curves.png"], rows)
    summary = summarise(rows)
    page = PAGE.format(title=html.escape(f"Run {run.name}"), score=html.escape(str(summary)), settings=_table(config))
    paths["index.html"].write_text(page, encoding="utf-8")
    _tell(console, run, summary, paths)
    return paths["index.html"]


def summarise(rows: list[dict[str, Any]]) -> Summary:
    """The scores with which a run started and ended."""
    scores = [row["knn_top1"] for row in rows if "knn_top1" in row]
    return Summary(scores[0], scores[-1]) if scores else Summary(None, None)


def _table(config: Config) -> str:
    rows = []
    for section, values in config.model_dump(mode="json").items():
        for name, value in values.items() if isinstance(values, dict) else [("", values)]:
            setting = f"{section}.{name}".rstrip(".")
            rows.append(f"<tr><td>{html.escape(setting)}</td><td>{html.escape(str(value))}</td></tr>")
    return "".join(rows)


def _tell(console: Console, run: Path, summary: Summary, paths: dict[str, Path]) -> None:
    lines = {
        "run folder": run,
        "example views": paths["views.png"],
        "attention maps": paths["attention.png"],
        "report": paths["index.html"],
    }
    console.print(f"\n[bold]{summary}[/bold]", highlight=False, soft_wrap=True)
    for name, path in lines.items():
        console.print(f"{name:15} {path}", highlight=False, soft_wrap=True)
