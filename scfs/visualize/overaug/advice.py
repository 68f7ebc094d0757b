"""The rule by which crop scales are suggested.

A scale suits local views if at least 90 % of the views of this area are closer to their own image than to another one
and, where the objects are known, at most 10 % hold none of them; global views, which are targets, at 95 % and 5 %.
The smallest scale that suits, interpolated between the measured ones, is the lower end of each range. Local views end
where global ones begin, as in the paper, or at 1.5 times their lower end if that is more; if no global scale suits,
none is suggested for local views either. With random weights, whose similarity means little, only the objects count,
if they are known.
"""

from typing import NamedTuple

import numpy as np

from scfs.evaluate.resampling import Values, interval, resampled_means
from scfs.runs.metric import Metric
from scfs.visualize.overaug.similarity import Audit

# I images, S scales

LOCAL_LEVEL, GLOBAL_LEVEL, LEAST_RANGE = 0.9, 0.95, 1.5
Scale = tuple[float, float]


class Advice(NamedTuple):
    """Crop scales for a data set, and why."""

    local_scale: Scale | None  # None where no measured scale suits
    global_scale: Scale | None
    metrics: list[Metric]  # the lower ends, with intervals
    sentence: str


def advise(audit: Audit, *, random: bool) -> Advice:
    """Apply the rule. random: the weights are not trained."""
    suited = {  # by kind of view: the fractions that must reach the level, (I, S) each
        "local": (_suited(audit, audit.local.closer, random=random), LOCAL_LEVEL),
        "global": (_suited(audit, audit.global_.closer, random=random), GLOBAL_LEVEL),
    }
    lows = [smallest_suited(audit.scales, [_mean(each) for each in all_], level) for all_, level in suited.values()]
    metrics = [
        Metric(f"smallest {name} area", low, _interval(audit.scales, *of_kind), higher_is_better=False)
        for (name, of_kind), low in zip(suited.items(), lows, strict=True)
        if low is not None
    ]
    local, global_ = lows
    if local is None or global_ is None:
        scale = None if global_ is None else _rounded(global_, 1.0)
        return Advice(None, scale, metrics, _without_local(scale, audit, random=random))
    start = max(local, global_)
    scales = _rounded(local, min(max(start, LEAST_RANGE * local), 1.0)), _rounded(start, 1.0)
    return Advice(*scales, metrics, _sentence(*scales, audit, random=random))


def _suited(audit: Audit, closer: Values, *, random: bool) -> list[Values]:
    objects = [1 - audit.empty] if audit.knows_objects else []
    return objects if random and objects else [closer, *objects]


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


def _interval(scales: tuple[float, ...], fractions: list[Values], level: float) -> tuple[float, float]:
    """95 % interval over images; a resample in which no scale suits counts as 1."""
    resampled = zip(*(resampled_means(each) for each in fractions), strict=True)
    lows = [smallest_suited(scales, list(means), level) for means in resampled]
    [[low, high]] = interval(np.array([[1.0 if each is None else each] for each in lows]))
    return float(low), float(high)


def _sentence(local: Scale, global_: Scale, audit: Audit, *, random: bool) -> str:
    closer = "at least {} of {}views are closer to their own image than to another"
    empty = "at most {} of {}views hold no object"
    reasons = [closer, empty] if audit.knows_objects and not random else [empty] if audit.knows_objects else [closer]
    first = " and ".join(
        each.format(
            _percent(LOCAL_LEVEL if each is closer else 1 - LOCAL_LEVEL), "local " if each is reasons[0] else ""
        )
        for each in reasons
    )
    levels = " and ".join(_percent(GLOBAL_LEVEL if each is closer else 1 - GLOBAL_LEVEL) for each in reasons)
    ranges = [" ".join(f"{end:g}" for end in each) for each in (local, global_)]
    return (
        f"Advice: --views.local_scale {ranges[0]} --views.global_scale {ranges[1]}, since from an area of {local[0]:g} "
        f"on {first}, and from {global_[0]:g} on {levels} of global views{_warning(random)}."
    )


def _without_local(global_: Scale | None, audit: Audit, *, random: bool) -> str:
    best = [_percent(float(each.closer.mean(axis=0).max())) for each in (audit.local, audit.global_)]
    if global_ is not None:
        start = f"--views.global_scale {global_[0]:g} {global_[1]:g}, and keep --views.local_scale"
        reason = f"at best {best[0]} of local views are closer to their own image than to another"
    else:
        start = "keep --views.local_scale and --views.global_scale"
        reason = (
            f"at best {best[0]} of local and {best[1]} of global views are closer to their own image than to another"
        )
    needed = f"{_percent(LOCAL_LEVEL)} of local and {_percent(GLOBAL_LEVEL)} of global views should be"
    return f"Advice: {start}, since {reason} and {needed}{_warning(random)}."


def _warning(random: bool) -> str:
    return "; the weights are random, so that their similarity means little" if random else ""


def _mean(values: Values) -> Values:
    """Over the images that have a value, of which there is one: (I, S) -> (S,)."""
    mean: Values = np.nanmean(values, axis=0)
    return mean


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.0f} %"


def _rounded(low: float, high: float) -> Scale:
    return float(f"{low:.2g}"), float(f"{high:.2g}")
