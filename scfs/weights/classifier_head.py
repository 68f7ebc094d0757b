from typing import Any

from torch import Tensor

from scfs.weights.match import HEADS, OPTIONAL, PAIRS, WRAPPED, Mismatch, locate
from scfs.weights.read import Stored

# K classes, C channels

# Parts of names that only networks of self-supervised projects have: their heads are projections.
PROJECTED = {*WRAPPED, *(name for pair in PAIRS for name in pair)} - {"", "backbone"}


def match_head(stored: Stored, net: Any, num_features: int) -> tuple[Tensor, Tensor]:
    """Weight (K, C) and bias (K,) of the linear classifier beside a backbone in a file; raises `Mismatch` if none is.

    Strict: the head must be that one layer on the network's pooled feature. Heads of self-supervised projects are
    projections, even where they have the shape of a classifier, as MoCo's first.
    """
    expected = [name for name in net.state_dict() if not name.endswith(OPTIONAL)]
    naming = locate(stored.tensors, expected, stored.network)
    if stored.format or {*naming.parts} & PROJECTED:
        raise Mismatch(f"it is a file of {stored.format or 'self-supervised learning'}, without a classifier")
    used = {naming.prefix + theirs for theirs in naming.names.values()}
    head = {
        name: tensor
        for name, tensor in stored.tensors.items()
        if name not in used and name.startswith(naming.prefix) and _first(name, naming.prefix) in HEADS
    }
    if not head:
        raise Mismatch(f"it has none of {', '.join(sorted(HEADS))}")
    stem = next(iter(head)).rpartition(".")[0]
    weight, bias = (head.get(f"{stem}.{part}") for part in ("weight", "bias"))
    if weight is None or bias is None or len(head) > 2:
        raise Mismatch(f"its head ({', '.join(head)}) is not one linear layer")
    if weight.ndim != 2 or weight.shape[1] != num_features or bias.shape != weight.shape[:1]:
        shapes = " and ".join(" x ".join(map(str, each.shape)) for each in (weight, bias))
        raise Mismatch(f"'{stem}' is {shapes}, not a linear layer on {num_features} channels")
    if not (weight.isfinite().all() and bias.isfinite().all()):
        raise Mismatch(f"'{stem}' is not finite everywhere")
    return weight.float(), bias.float()


def _first(name: str, prefix: str) -> str:
    return name.removeprefix(prefix).partition(".")[0]
