"""A map of the photos in which similar features are close to each other."""

from collections.abc import Sequence

import torch
from torch import Tensor

from scfs.visualize.features import sample_indices
from scfs.visualize.report.charts import NUM_COLOURS, colour
from scfs.visualize.report.evidence import Evidence, Photos, Seen
from scfs.visualize.report.markup import Html, Section, columns, join, tag
from scfs.visualize.report.thumbnails import data_uri, square
from scfs.visualize.tsne import MIN_POINTS, tsne

NUM_POINTS = 800  # photos at most: the time grows with their square
WIDTH, HEIGHT, MARGIN = 1120, 700, 40
MIN_SIDE, MAX_SIDE, GAP = 40, 72, 2  # of a thumbnail on the map
OUTSIDE = 0.005  # fraction of points beyond each edge
PIXELS = 64  # of a thumbnail in the file
MAX_CLASSES = NUM_COLOURS - 1  # with colours of their own; the last colour is for the others


def map_section(evidence: Evidence) -> Section | None:
    """The map of each trained network; meaningless with a handful of photos."""
    count = len(evidence.photos.indices)
    if count < MIN_POINTS:
        return None
    rows = sample_indices(count, NUM_POINTS)
    styles = class_colours(evidence.photos.labels[rows]) if evidence.photos.source.classes else {}
    maps = [_map(seen, evidence.photos, rows, styles, is_one=len(evidence.trained) == 1) for seen in evidence.trained]
    intro = (
        f"{len(rows):,} photos by the features after training (t-SNE of L2-normalised features): photos that the "
        "network finds similar are close; distances between groups mean little. Dots are photos without room."
    )
    return Section("Map of the photos", join([_key(evidence.photos, styles), columns(maps)]), intro)


def class_colours(labels: Tensor) -> dict[int, int]:
    """A colour, by number, for each of the largest classes."""
    present, counts = labels[labels >= 0].unique(return_counts=True)
    largest = present[counts.argsort(descending=True, stable=True)][:MAX_CLASSES]
    return {label: number for number, label in enumerate(sorted(largest.tolist()))}


def placed(points: Tensor, side: float) -> list[int]:
    """The points, in order, at which squares do not overlap those of points before them."""
    chosen: list[int] = []
    for number, point in enumerate(points):
        apart = (points[chosen] - point).abs().amax(dim=1) if chosen else torch.ones(0)
        if not chosen or float(apart.min()) >= side:
            chosen.append(number)
    return chosen


def _map(seen: Seen, photos: Photos, rows: Sequence[int], styles: dict[int, int], *, is_one: bool) -> Html:
    points = _scaled(tsne(seen.features[list(rows)]))
    side = min(MAX_SIDE, max(MIN_SIDE, int(0.55 * (WIDTH * HEIGHT / len(rows)) ** 0.5)))
    shown = set(placed(points, side + GAP))
    dots, thumbs = [], []
    for number, (row, (x, y)) in enumerate(zip(rows, points.tolist(), strict=True)):
        style = f"--c:{_colour(int(photos.labels[row]), styles)}"
        if number in shown:
            thumbs.append(_thumb(photos, row, (x, y, side), style if styles else None))
        else:
            dots.append(tag("circle", cx=round(x, 1), cy=round(y, 1), r=4, style=f"fill:var(--c);{style}"))
    about = f"map of {len(rows)} photos, {seen.name}"
    drawn = tag("svg", *dots, *thumbs, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=about)
    title = Html() if is_one else tag("h3", seen.name)
    return tag("div", title, tag("div", drawn, class_="map"))


def _scaled(points: Tensor) -> Tensor:
    """Points that fill the map, whatever their extent; the few far from all others are at its edge."""
    low, high = (points.quantile(q, dim=0) for q in (OUTSIDE, 1 - OUTSIDE))
    room = torch.tensor([WIDTH, HEIGHT]) - 2 * MARGIN
    return MARGIN + ((points - low) / (high - low).clamp(min=1e-12)).clamp(0, 1) * room


def _thumb(photos: Photos, row: int, box: tuple[float, float, int], style: str | None) -> Html:
    """A thumbnail at the centre and of the side of a box, framed in the colour of its class."""
    x, y, side = box
    left, top = round(x - side / 2, 1), round(y - side / 2, 1)
    image = tag(
        "image",
        tag("title", photos.caption(row)),
        href=data_uri(square(photos.image(row), PIXELS)),
        x=left,
        y=top,
        width=side,
        height=side,
    )
    if style is None:
        return image
    frame = f"fill:none;stroke:var(--c);stroke-width:3;{style}"
    return join([image, tag("rect", x=left, y=top, width=side, height=side, style=frame)])


def _colour(label: int, styles: dict[int, int]) -> str:
    return colour(styles.get(label, NUM_COLOURS - 1))


def _key(photos: Photos, styles: dict[int, int]) -> Html:
    if not styles:
        return Html()
    names = [
        tag("span", tag("i", style=f"--c:{colour(number)}"), photos.source.classes[label])
        for label, number in styles.items()
    ]
    rest = len(photos.labels.unique()) - len(styles)
    others = (
        [tag("span", tag("i", style=f"--c:{colour(NUM_COLOURS - 1)}"), f"{rest} other classes")] if rest > 0 else []
    )
    return tag("div", *names, *others, class_="key")
