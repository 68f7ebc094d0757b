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
FEW_OUTPUTS = 2  # that the teacher uses over all images, if one wins
MIN_SPREAD = 0.02
MIN_INFORMATION = 0.002  # of the teacher's output about the image, as a fraction of ln K
ABOVE_UNIFORM = 1.5  # times the loss of a uniform guess, ln K
MIN_SEPARATION = 0.05  # of images; 0.1 at random weights, and 0 up to chance if all images are the same
MIN_PIXEL_SPREAD = 0.02  # of normalized views; 0.7 to 0.8 for scenes and photos
SHRUNK = 0.6  # times the effective rank of the features at the start
EQUAL = 0.99999  # cosine of the student's and the teacher's features

# Kinds, worst first.
COLLAPSE, BLANK, INDISTINCT, SAME = "collapse", "blank", "indistinct", "spread"
CONSTANT, ABOVE, RANK = "constant", "above uniform", "rank"
UNINFORMATIVE, FLAT_HEAD, SAME_NETWORK, FROZEN_TEACHER = "uninformative", "flat", "same network", "frozen teacher"


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
    else:
        yield from _image_findings(means)
    yield from _teacher_findings(means)


def rank_findings(first: float, now: float) -> Iterator[Finding]:
    """What is wrong with the effective rank of the features (RankMe), compared with that of random weights."""
    if now < SHRUNK * first:
        yield Finding(
            RANK,
            "",
            f"the features lose dimensions (RankMe fell from {first:.1f} to {now:.1f}): a partial collapse. Lower "
            "optim.lr or lengthen optim.warmup_epochs.",
        )


def _image_findings(means: Mapping[str, float]) -> Iterator[Finding]:
    """Images from which nothing can be learned, or a network that cannot tell them apart."""
    if means.get("pixel_spread", 1.0) < MIN_PIXEL_SPREAD:
        yield Finding(
            BLANK,
            "",
            f"views show a single colour each (spread of pixels {means['pixel_spread']:.3f}), from which nothing is "
            "learned about images. Look at the views, which --dry-run draws, and check data.source.",
        )
    if means.get("separation", 1.0) < MIN_SEPARATION:
        yield Finding(
            INDISTINCT,
            "",
            "two views of an image are hardly more alike than views of different images (separation "
            f"{means['separation']:.3f}), so that nothing is learned about images. Look for repeated images with "
            "scfs check-data; if there are none, lower optim.lr or raise the smaller value of views.global_scale.",
        )


def _teacher_findings(means: Mapping[str, float]) -> Iterator[Finding]:
    """Teachers that do not follow the student at a distance; `agreement` is logged if the teacher gives the targets."""
    if "agreement" not in means:
        return
    if means["agreement"] > EQUAL:
        yield Finding(
            SAME_NETWORK,
            "",
            f"the teacher's features are those of the student (cosine {means['agreement']:.6f}), so that it teaches "
            "nothing that the student does not know. Raise method.momentum, or optim.lr if the student stands still.",
        )
    if means.get("momentum") == 1.0:  # a schedule that ends at 1 stays below it
        yield Finding(
            FROZEN_TEACHER,
            "",
            "the teacher does not move (momentum 1): the student only learns to imitate what it was at the start. "
            "Lower method.momentum.",
        )


def _softmax_findings(term: str, outputs: int, means: Mapping[str, float]) -> Iterator[Finding]:
    if (entropy := means.get(f"entropy/{term}")) is None:  # in logs of version 0.1
        return
    log_k, loss = math.log(outputs), means[f"loss/{term}"]
    used = math.exp((entropy - 1) * log_k)
    if "/" not in term and loss > ABOVE_UNIFORM * log_k:  # those at layers are scaled by their weight
        yield Finding(
            ABOVE,
            term,
            f"the loss of '{term}' is {loss:.2f}, far above that of a uniform guess (ln K = {log_k:.2f}): training "
            "diverges. Lower optim.lr or lengthen optim.warmup_epochs.",
        )
    if used > FLAT:
        yield Finding(
            FLAT_HEAD,
            term,
            f"the head of '{term}' is flat: the teacher spreads its probability over {used:.0%} of {outputs} "
            f"outputs (entropy {entropy:.3f} of ln K) and teaches nothing. Lower method.teacher_temp; for the data "
            "head lower method.out_dim or set method.batch_norm = true; or choose method.objective = 'info-nce'.",
        )
    if entropy < CERTAIN and loss < CERTAIN * log_k and means.get(f"used/{term}", 1.0) < FEW_OUTPUTS:
        yield Finding(
            CONSTANT,
            term,
            f"the loss of '{term}' is almost 0 ({loss:.3f}): one output wins for every image. "
            "Raise method.teacher_temp, or lower method.center_momentum so that the center follows faster.",
        )
    elif used <= FLAT and _information(term, log_k, entropy, means) < MIN_INFORMATION:
        yield Finding(
            UNINFORMATIVE,
            term,
            f"the head of '{term}' says nothing about the image: the teacher's output is the same "
            f"{means[f'used/{term}']:.0f} of {outputs} outputs for all. Lower method.center_momentum so that the "
            "center follows faster, lower optim.lr, or choose method.centering = 'sinkhorn'.",
        )


def _information(term: str, log_k: float, entropy: float, means: Mapping[str, float]) -> float:
    """Mutual information of image and output, as a fraction of ln K: how far outputs are from the batch's mean (KL)."""
    used = means.get(f"used/{term}")
    return math.inf if used is None else math.log(max(used, 1.0)) / log_k - entropy
