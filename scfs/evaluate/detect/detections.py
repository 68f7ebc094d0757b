from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

# N detections in an image, H W height and width of the image


class Rle(TypedDict):
    """A mask as COCO encodes it: run lengths down the columns, compressed."""

    size: list[int]  # height, width
    counts: bytes | str


@dataclass(frozen=True)
class Detections:
    """What a detector found in one image, by falling score."""

    boxes: NDArray[np.float32]  # (N, 4) x0 y0 x1 y1 in pixels of the image, edges as in `Objects`
    scores: NDArray[np.float32]  # (N,)
    labels: NDArray[np.int64]  # (N,) indices in the source's `object_classes`
    masks: tuple[Rle, ...] | None = None  # N of them, also if N is 0; None if the detector has no masks

    def __len__(self) -> int:
        return len(self.boxes)


def encode_masks(masks: Iterable[NDArray[np.bool_]]) -> tuple[Rle, ...]:
    """Masks, N of (H, W), as RLE."""
    from faster_coco_eval.core import mask as coco_masks  # needs an extra

    # One by one: the encoder wants columns, and turning a single mask stays in the processor's cache.
    return tuple(coco_masks.encode(np.asfortranarray(mask.astype(np.uint8))) for mask in masks)


def decode_masks(masks: Sequence[Rle]) -> NDArray[np.bool_]:
    """The masks (N, H, W) of RLE of one image; (0, 0, 0) without any, as their size is not known then."""
    if not masks:
        return np.zeros((0, 0, 0), np.bool_)
    from faster_coco_eval.core import mask as coco_masks  # needs an extra

    return np.stack([coco_masks.decode(mask) for mask in masks]).astype(np.bool_)


def coco_boxes(boxes: NDArray[np.float32]) -> list[list[float]]:
    """Boxes x0 y0 x1 y1 as x y width height."""
    corners = boxes.astype(np.float64)
    return np.concatenate([corners[:, :2], corners[:, 2:] - corners[:, :2]], axis=1).tolist()


def as_coco(found: Detections, *, image_id: int, category_ids: Sequence[int]) -> list[dict[str, Any]]:
    """The detections in an image as entries of COCO's result files; category_ids: of the classes."""
    rows = zip(found.labels.tolist(), coco_boxes(found.boxes), found.scores.tolist(), strict=True)
    entries: list[dict[str, Any]] = [
        {"image_id": image_id, "category_id": category_ids[label], "bbox": box, "score": score}
        for label, box, score in rows
    ]
    if found.masks is not None:
        for entry, mask in zip(entries, found.masks, strict=True):
            entry["segmentation"] = {"size": list(mask["size"]), "counts": _text(mask["counts"])}
    return entries


def _text(counts: bytes | str) -> str:
    return counts.decode("ascii") if isinstance(counts, bytes) else counts
