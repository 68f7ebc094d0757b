"""Draws an audit of crop scales."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, NullLocator
from numpy.typing import NDArray

from scfs.visualize.grid import save_figure

DPI, FONT, SMALL = 200, 8, 7
LOCAL, GLOBAL, EMPTY = "#0072B2", "#009E73", "#D55E00"
TICKS = (0.02, 0.05, 0.1, 0.2, 0.5, 1)
RANGES = {"local_scale": LOCAL, "global_scale": GLOBAL}


class Curve(NamedTuple):
    """A line with its 95 % interval over crop scales."""

    name: str
    colour: str
    values: NDArray[np.float64]  # (S,)
    bounds: NDArray[np.float64]  # (S, 2)
    style: str = "-"


def save_audit(
    path: Path,
    scales: Sequence[float],
    panels: dict[str, list[Curve]],
    *,
    levels: dict[float, str],
    ranges: dict[str, tuple[float, float]],
) -> None:
    """A panel of cosines and one of fractions, by the names of their axes, over the area of the crops.

    levels: fractions to mark in the second panel, with their colours. ranges: the suggested scales, shaded by name.
    """
    figure = Figure(figsize=(7.2, 3.3), layout="constrained")
    FigureCanvasAgg(figure)
    for number, (axes, (name, curves)) in enumerate(zip(figure.subplots(1, 2), panels.items(), strict=True)):
        for curve in curves:
            _draw(axes, scales, curve)
        _shade(axes, ranges)
        _set_axes(axes, name)
        if number == 1:
            axes.set_ylim(-2, 102)
            for level, colour in levels.items():
                axes.axhline(100 * level, color=colour, lw=0.7, ls=":")
        axes.legend(
            fontsize=SMALL,
            frameon=False,
            loc="upper center",
            bbox_to_anchor=(0.5, -0.19),
            ncols=2 if number == 0 else 1,
        )
    save_figure(figure, path, dpi=DPI)


def _draw(axes: Any, scales: Sequence[float], curve: Curve) -> None:
    style = {
        "color": curve.colour,
        "lw": 1.5,
        "ls": curve.style,
        "marker": "" if curve.style == ":" else "o",
        "ms": 2.8,
    }
    axes.plot(scales, curve.values, label=curve.name, zorder=3, **style)
    axes.fill_between(scales, *curve.bounds.T, color=curve.colour, alpha=0.18, lw=0, zorder=2)


def _shade(axes: Any, ranges: dict[str, tuple[float, float]]) -> None:
    """Shade the suggested scales and name them above the panel."""
    for name, (low, high) in ranges.items():
        colour = RANGES[name]
        axes.axvspan(low, high, color=colour, alpha=0.08, lw=0, zorder=1)
        axes.axvline(low, color=colour, lw=0.8, zorder=1)
        axes.annotate(
            f"{name} {low:g}-{high:g}",
            ((low * high) ** 0.5, 1.02 if name == "global_scale" else 1.085),
            xycoords=("data", "axes fraction"),
            color=colour,
            fontsize=SMALL,
            ha="center",
            annotation_clip=False,
        )


def _set_axes(axes: Any, name: str) -> None:
    axes.set_xscale("log")
    axes.set_xticks(TICKS, [f"{tick:g}" for tick in TICKS])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlim(TICKS[0] * 0.93, TICKS[-1] * 1.07)
    axes.tick_params(labelsize=SMALL)
    axes.set_xlabel("area of the crop, as a fraction of the image", fontsize=FONT)
    axes.set_ylabel(name, fontsize=FONT)
    axes.grid(alpha=0.25, lw=0.5)
    axes.spines[["top", "right"]].set_visible(False)
