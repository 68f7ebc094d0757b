"""What a scan found, as rows for a table or a file."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from scfs.data.counted import counted
from scfs.data.decode import Fault
from scfs.data.paths import readable, shown
from scfs.data.sources import Source
from scfs.data_check.scan import Scan

FAULTS = {Fault.DAMAGED: "unreadable", Fault.CUT_SHORT: "cut short", Fault.TOO_LARGE: "oversized"}
TINY, BLANK, DUPLICATE = "tiny", "blank", "duplicate"
PROBLEMS = {
    "unreadable": "damaged, missing or not an image; never trained on",
    "cut short": "the file ends too early; never trained on",
    "oversized": "too expensive to decode; never trained on",
    TINY: "shorter side under {} pixels; trained on",
    BLANK: "nearly black or of one colour; trained on",
    DUPLICATE: "the same pixels as another image; trained on",
}
QUANTILES = {"smallest": 0.0, "5 %": 0.05, "median": 0.5, "95 %": 0.95, "largest": 1.0}


class Finding(NamedTuple):
    """One problem of one image."""

    problem: str  # a key of PROBLEMS
    image: str
    detail: str


def findings(source: Source, scan: Scan, *, min_side: int) -> Iterator[Finding]:
    """Every problem, in the order of the images within each kind."""
    for index, (fault, reason) in sorted(scan.unreadable.items()):
        yield Finding(FAULTS[fault], readable(source.name(index)), readable(reason))
    for index in scan.readable[scan.sizes[scan.readable].min(axis=1, initial=2**31 - 1) < min_side].tolist():
        width, height = scan.sizes[index].tolist()
        yield Finding(TINY, readable(source.name(index)), f"{width} x {height} pixels")
    for index, detail in sorted(scan.blank.items()):
        yield Finding(BLANK, readable(source.name(index)), detail)
    for first, others in scan.duplicates().items():
        for index in others:
            yield Finding(DUPLICATE, readable(source.name(index)), f"equals {readable(source.name(first))}")


def effective_set(source: Source, scan: Scan) -> dict[str, Any]:
    """What remains to train on: images, images per class, and quantiles of the shorter side in pixels."""
    members = scan.readable
    counts = Counter(source.label(index) for index in members.tolist()) if source.classes else Counter[int]()
    sides = scan.sizes[members].min(axis=1) if len(members) else np.zeros(1, np.int32)
    quantiles = np.quantile(sides, list(QUANTILES.values()), method="nearest").tolist()
    return {
        "images": len(members),
        "distinct_images": len(members) - sum(map(len, scan.duplicates().values())),
        "classes": {readable(name): counts[label] for label, name in enumerate(source.classes)},
        "shorter_side": dict(zip(QUANTILES, quantiles, strict=True)),
    }


def described(effective: Mapping[str, Any]) -> dict[str, str]:
    """The effective set in words, by line."""
    classes, sides = effective["classes"], effective["shorter_side"]
    lines = {"images": f"{effective['images']}, of which {effective['distinct_images']} distinct"}
    if classes:
        smallest, largest = (choose(classes, key=classes.__getitem__) for choose in (min, max))
        fewest, most = classes[smallest], classes[largest]
        sizes = f"from {counted(fewest, 'image')} ({shown(smallest)}) to {most} ({shown(largest)})"
        sizes = sizes if fewest < most else f"{counted(most, 'image')} each"
        lines["classes"] = f"{len(classes)}, {sizes}"
    lines["shorter side"] = ", ".join(f"{name} {value}" for name, value in sides.items()) + " pixels"
    return lines
