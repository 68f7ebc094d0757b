"""Signs of collapse in the numbers of a training, with a remedy for each: thresholds and sentences.

Pre-training warns of them as they appear, and a report reads them from a run's log.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

WINDOW = 30  # steps to average over
PATIENCE = 0.1  # fraction of the run before the first check: every run starts near ln K

FLAT = 0.8  # fraction of a head's outputs that the teacher uses, exp(entropy) / K; a third at random weights and 0.04
CERTAIN = 0.02  # entropy of a head, as a fraction of ln K
MIN_SPREAD = 0.02

COLLAPSE, SAME, CONSTANT, FLAT_HEAD = "collapse", "spread", "constant", "flat"  # kinds, worst first


class Finding(NamedTuple):
    """A sign of collapse."""

    kind: str
    term: str  # whose head it is about; empty for the features
    message: str  # with a remedy


def first_check(total_steps: int) -> int:
    """The step after which numbers are judged."""
    return max(WINDOW, int(total_steps * PATIENCE))


def findings(means: Mapping[str, float], num_outputs: Callable[[str], int | None]) -> Iterator[Finding]:
    """What is wrong in the means of losses, entropies and spreads over some steps.

    num_outputs: K of the head of a term, None if it has no softmax.
    """
    for name in means:
        kind, _, term = name.partition("/")
        if kind == "loss" and term and (outputs := num_outputs(term)) is not None:
            yield from _softmax_findings(term, outputs, means)
        if kind == "spread" and means[name] < MIN_SPREAD:
            yield Finding(
                SAME,
                term,
                f"the head of '{term}' gives nearly the same output for all images (spread {means[name]:.3f}) and "
                "teaches nothing. Lower optim.lr or lengthen optim.warmup_epochs; with objective dino lower "
                "method.teacher_temp, or set method.batch_norm = true.",
            )
    if means.get("feature_spread", 1.0) < MIN_SPREAD:
        yield Finding(
            COLLAPSE,
            "",
            f"the features of all images are nearly the same (spread {means['feature_spread']:.3f}): the network "
            "is collapsing. Lower optim.lr, lengthen optim.warmup_epochs or, with method.targets = 'teacher', "
            "raise method.momentum.",
        )


def _softmax_findings(term: str, outputs: int, means: Mapping[str, float]) -> Iterator[Finding]:
    if (entropy := means.get(f"entropy/{term}")) is None:  # in logs of version 0.1
        return
    log_k, loss = math.log(outputs), means[f"loss/{term}"]
    used = math.exp((entropy - 1) * log_k)
    if used > FLAT:
        yield Finding(
            FLAT_HEAD,
            term,
            f"the head of '{term}' is flat: the teacher spreads its probability over {used:.0%} of {outputs} "
            f"outputs (entropy {entropy:.3f} of ln K) and teaches nothing. Lower method.teacher_temp; for the data "
            "head lower method.out_dim or set method.batch_norm = true; or choose method.objective = 'info-nce'.",
        )
    if entropy < CERTAIN and loss < CERTAIN * log_k:
        yield Finding(
            CONSTANT,
            term,
            f"the loss of '{term}' is almost 0 ({loss:.3f}): one output wins for every image. "
            "Raise method.teacher_temp, or lower method.center_momentum so that the center follows faster.",
        )
