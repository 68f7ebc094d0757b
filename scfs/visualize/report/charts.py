"""Plots as SVG in the colours of the page, so that they are legible in light, in dark and on paper."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from scfs.visualize.report.markup import Html, join, tag

WIDTH, HEIGHT = 440, 250
LEFT, RIGHT, TOP, BOTTOM = 52, 10, 10, 40  # margins
MAX_POINTS = 300  # of a line
FEW_POINTS = 20  # that are drawn as dots too
NUM_COLOURS = 8

Points = list[tuple[float, float]]  # (step, value)


class Line(NamedTuple):
    """A curve and its colour, by number."""

    name: str
    points: Points
    colour: int


class Reference(NamedTuple):
    """A horizontal line to compare curves with."""

    name: str
    value: float
    colour: int


class Chart(NamedTuple):
    """Curves over the steps of training, in one pair of axes."""

    title: str
    y_label: str
    lines: list[Line]
    references: Sequence[Reference] = ()
    is_named: bool = True  # by its title, if it has one line


class Axis(NamedTuple):
    """The ends of an axis, and its ticks."""

    low: float
    high: float
    ticks: list[float]

    def position(self, value: float, start: float, end: float) -> float:
        return start + (value - self.low) / (self.high - self.low) * (end - start)


def chart(content: Chart) -> Html:
    """Axes with names, ticks and curves; the legend is below."""
    steps = [step for line in content.lines for step, _ in line.points]
    values = [value for line in content.lines for _, value in line.points if math.isfinite(value)]
    values += [reference.value for reference in content.references]
    x, y = _steps_axis(steps), axis_of(values or [0.0])
    drawn = tag(
        "svg",
        *_grid(x, y, content.y_label),
        *(_reference(reference, y) for reference in content.references),
        *(_line(line, x, y) for line in content.lines),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_label=f"{content.title} over the steps of training",
    )
    return tag("figure", tag("h3", content.title), drawn, legend(content), class_="chart")


def legend(content: Chart) -> Html:
    """Names and colours of lines; nothing where the title says it all."""
    if len(content.lines) == 1 and not content.references and content.is_named:
        return Html()
    lines = [
        tag("span", tag("i", class_=_pattern(line), style=f"--c:{colour(line.colour)}"), line.name)
        for line in content.lines
    ]
    dashed = [
        tag("span", tag("i", class_="dash", style=f"--c:{colour(reference.colour)}"), reference.name)
        for reference in content.references
    ]
    return tag("div", *lines, *dashed, class_="key")


def colour(number: int) -> str:
    """A colour of the page, by number."""
    return f"var(--s{number % NUM_COLOURS})"


def _pattern(line: Line) -> str | None:
    """Dots for lines whose colour another one has already."""
    return "dotted" if line.colour >= NUM_COLOURS else None


def axis_of(values: Sequence[float]) -> Axis:
    """An axis that contains all values and ends at ticks."""
    low, high = min(values), max(values)
    if low == high:
        low, high = (low - 0.5, high + 0.5) if low == 0 else (min(0.0, 2 * low), max(0.0, 2 * high))
    step = _nice((high - low) / 4)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = [number * step for number in range(first, last + 1)]
    return Axis(ticks[0], ticks[-1], ticks)


def _steps_axis(steps: Sequence[float]) -> Axis:
    """An axis from 0 to the last step."""
    last = max(max(steps), 1)
    return Axis(0, last, [tick for tick in axis_of([0, last]).ticks if tick <= last])


def _nice(step: float) -> float:
    """The next step of 1, 2 or 5 times a power of ten."""
    power = 10 ** math.floor(math.log10(step))
    return next(nice * power for nice in (1, 2, 5, 10) if nice * power >= step * (1 - 1e-9))


def _grid(x: Axis, y: Axis, y_label: str) -> list[Html]:
    left, right, top, bottom = LEFT, WIDTH - RIGHT, TOP, HEIGHT - BOTTOM
    parts = []
    for tick in y.ticks:
        height = round(y.position(tick, bottom, top), 1)
        parts.append(tag("line", x1=left, x2=right, y1=height, y2=height, class_="grid"))
        parts.append(tag("text", f"{tick:.4g}", x=left - 6, y=height + 4, text_anchor="end"))
    for tick in x.ticks:
        parts.append(
            tag("text", f"{tick:g}", x=round(x.position(tick, left, right), 1), y=bottom + 16, text_anchor="middle")
        )
    middle = (top + bottom) / 2
    parts.append(tag("text", "step", x=(left + right) / 2, y=HEIGHT - 6, text_anchor="middle"))
    parts.append(tag("text", y_label, x=12, y=middle, text_anchor="middle", transform=f"rotate(-90 12 {middle:g})"))
    return parts


def _reference(reference: Reference, y: Axis) -> Html:
    height = round(y.position(reference.value, HEIGHT - BOTTOM, TOP), 1)
    style = f"--c:{colour(reference.colour)}"
    return tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=height, y2=height, class_="reference", style=style)


def _line(line: Line, x: Axis, y: Axis) -> Html:
    points = [point for point in line.points if math.isfinite(point[1])]
    stride = -(-len(points) // MAX_POINTS)
    kept = [*points[::stride], *points[-1:]] if stride > 1 else points
    placed = [(x.position(step, LEFT, WIDTH - RIGHT), y.position(value, HEIGHT - BOTTOM, TOP)) for step, value in kept]
    style = f"--c:{colour(line.colour)}"
    curve = tag("polyline", points=" ".join(f"{a:.1f},{b:.1f}" for a, b in placed), class_=_pattern(line), style=style)
    dots = placed if len(placed) < FEW_POINTS else []
    return join([curve, *(tag("circle", cx=round(a, 1), cy=round(b, 1), r=2.5, style=style) for a, b in dots)])
