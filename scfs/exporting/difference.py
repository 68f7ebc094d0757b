import math

from torch import Tensor


def relative_difference(ours: Tensor, theirs: Tensor) -> float:
    """The largest difference of another library's output, as a fraction of our largest value or, if larger, of 1."""
    if ours.shape != theirs.shape:
        return math.inf
    difference = float((ours - theirs).abs().max() / ours.abs().max().clamp(min=1))
    return math.inf if math.isnan(difference) else difference
