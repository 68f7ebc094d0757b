"""The rule by which crop scales are suggested.

A scale suits local views if at least 90 % of the views of this area are closer to their own image than to another one
and, where the objects are known, at most 10 % hold none of them; global views, which are targets, at 95 % and 5 %.
The smallest scale that suits, interpolated between the measured ones, is the lower end of each range. Local views end
where global ones begin, as in the paper, or at 1.5 times their lower end if that is more; if no global scale suits,
none is suggested for local views either. With random weights, whose similarity means little, only the objects count,
if they are known.
"""

import math
from typing import NamedTuple

import numpy as np

from scfs.evaluate.resampling import Values, interval, resampled_means
from scfs.runs.metric import Metric
from scfs.visualize.overaug.similarity import Audit

# I images, S scales

LOCAL_LEVEL, GLOBAL_LEVEL, LEAST_RANGE = 0.9, 0.95, 1.5
CLOSER, OBJECT = "are closer to their own image than to another", "hold an object"  # what is asked of views
Scale = tuple[float, float]


class Advice(NamedTuple):
    """Crop scales for a data set, and why."""

    local_scale: Scale | None  # None where no measured scale suits
    global_scale: Scale | None
    metrics: list[Metric]  # the lower ends, with intervals
    sentence: str


class Kind(NamedTuple):
    """Views of one kind, and what so many of them must satisfy."""

    name: str
    level: float
    criteria: dict[str, Values]  # the fractions (I, S) that satisfy each


def advise(audit: Audit, *, random: bool, new_local_views: str = "") -> Advice:
    """Apply the rule. random: the weights are not trained.

    new_local_views: flags with which a run that was trained without local views would have some.
    """
    kinds = (
        Kind("local", LOCAL_LEVEL, _criteria(audit, audit.local.closer, random=random)),
        Kind("global", GLOBAL_LEVEL, _criteria(audit, audit.global_.closer, random=random)),
    )
    lows = [smallest_suited(audit.scales, [*map(_mean, each.criteria.values())], each.level) for each in kinds]
    metrics = [
        Metric(f"smallest {kind.name} area", low, _interval(audit.scales, kind), higher_is_better=False)
        for kind, low in zip(kinds, lows, strict=True)
        if low is not None
    ]
    local, global_ = lows
    scales: tuple[Scale | None, Scale | None] = (None, None if global_ is None else _rounded(global_, 1.0))
    if local is not None and global_ is not None:
        start = max(local, global_)
        scales = _rounded(local, min(max(start, LEAST_RANGE * local), 1.0)), _rounded(start, 1.0)
    warning = "; the weights are random, so that their similarity means little" if random else ""
    return Advice(*scales, metrics, f"Advice: {_sentence(kinds, *scales, new_local_views)}{warning}.")


def _criteria(audit: Audit, closer: Values, *, random: bool) -> dict[str, Values]:
    objects = {OBJECT: 1 - audit.empty} if audit.knows_objects else {}
    return objects if random and objects else {CLOSER: closer, **objects}


def smallest_suited(scales: tuple[float, ...], fractions: list[Values], level: float) -> float | None:
    """The smallest scale from which on all fractions, (S,) each, have reached a level; None if one never does."""
    found = [reaching(scales, each, level) for each in fractions]
    return None if None in found else max(scale for scale in found if scale is not None)


def reaching(scales: tuple[float, ...], values: Values, level: float) -> float | None:
    """The scale at which values (S,) first reach a level, interpolated linearly in the logarithm of the scale."""
    [reached] = np.nonzero(values >= level)
    if not len(reached):
        return None
    first = int(reached[0])
    if first == 0:
        return scales[0]
    part = (level - values[first - 1]) / (values[first] - values[first - 1])
    return float(scales[first - 1] * (scales[first] / scales[first - 1]) ** part)


def _interval(scales: tuple[float, ...], kind: Kind) -> tuple[float, float]:
    """95 % interval over images; a resample in which no scale suits counts as 1."""
    resampled = zip(*(resampled_means(each) for each in kind.criteria.values()), strict=True)
    lows = [smallest_suited(scales, list(means), kind.level) for means in resampled]
    [[low, high]] = interval(np.array([[1.0 if each is None else each] for each in lows]))
    return float(low), float(high)


def _sentence(kinds: tuple[Kind, Kind], local: Scale | None, global_: Scale | None, new_local_views: str) -> str:
    unknown = f"this network is too weak to tell which areas suit: whatever the area, {_missed(kinds)}"
    if global_ is None:
        flags = "--views.global_scale" if new_local_views else "--views.local_scale and --views.global_scale"
        return f"keep {flags}, since {unknown}"
    flag = f"--views.global_scale {_range(global_)}"
    reason = f"from an area of {global_[0]:g} on {_reached(kinds[1])}"
    if local is None:
        of_local = "add no local views" if new_local_views else "keep --views.local_scale"
        return f"{flag}, since {reason}; and {of_local}, since {unknown}"
    flags = f"--views.local_scale {_range(local)} {flag}"
    if new_local_views:
        flags = f"{flag} or, with local views, which this run does not have, {new_local_views} {flags}"
    return f"{flags}, since from an area of {local[0]:g} on {_reached(kinds[0])}, and {reason}"


def _reached(kind: Kind) -> str:
    level = f"at least {_percent(kind.level)}"
    return f"{level} of {kind.name} views " + f" and {level} ".join(kind.criteria)


def _missed(kinds: tuple[Kind, Kind]) -> str:
    """How far the criteria that no area satisfies are reached."""
    best = [(kind, name, _mean(values).max()) for kind in kinds for name, values in kind.criteria.items()]
    return " and ".join(
        f"at most {_percent(fraction)} of {kind.name} views {name} ({_percent(kind.level)} are needed)"
        for kind, name, fraction in best
        if fraction < kind.level
    )


def _range(scale: Scale) -> str:
    return f"{scale[0]:g} {scale[1]:g}"


def _mean(values: Values) -> Values:
    """Over the images that have a value, of which there is one: (I, S) -> (S,)."""
    mean: Values = np.nanmean(values, axis=0)
    return mean


def _percent(fraction: float) -> str:
    """Rounded down, so that what misses a level does not look like it."""
    return f"{math.floor(100 * fraction + 1e-6)} %"


def _rounded(low: float, high: float) -> Scale:
    return float(f"{low:.2g}"), float(f"{high:.2g}")
