from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress
from torch import Tensor, nn
from torchvision.models.detection.roi_heads import paste_masks_in_image

from scfs.data.annotated_loader import ScoredDataset
from scfs.data.loader import num_workers, single_images
from scfs.data.sources import Source
from scfs.distributed import gather, rank, world_size
from scfs.evaluate.detect.detections import Detections, encode_masks
from scfs.evaluate.detect.models import REGION_MASKS

MASK_THRESHOLD = 0.5


class Found(NamedTuple):
    """What a detector found in every image that can be read."""

    indices: list[int]  # of the images, in the source
    sizes: list[tuple[int, int]]  # of each of them: width, height
    detections: list[Detections]  # in each of them
    unreadable: list[str]  # name and reason of each other image


@torch.no_grad()
def find_objects(
    detector: nn.Module, source: Source, *, workers: int | str, device: torch.device, console: Console
) -> Found:
    """Apply a detector to all images of a source. Each process takes a shard of them, and all get everything."""
    detector.eval()
    shard = range(rank(), len(source), world_size())
    images = single_images(
        ScoredDataset(source, shard), workers=num_workers(workers, device), pin=device.type == "cuda"
    )
    found, unreadable = dict[int, tuple[tuple[int, int], Detections]](), list[str]()
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        for scored in progress.track(images, total=len(shard), description="objects"):
            if scored.unreadable:
                unreadable.append(scored.unreadable)
                continue
            [output] = detector([scored.image.to(device).float() / 255])
            height, width = scored.image.shape[1:]
            found[int(scored.number)] = (width, height), _as_detections(output, (height, width))
    everywhere = {index: each for there in gather(found) for index, each in there.items()}
    indices = sorted(everywhere)
    sizes, detections = [everywhere[index][0] for index in indices], [everywhere[index][1] for index in indices]
    return Found(indices, sizes, detections, [problem for there in gather(unreadable) for problem in there])


def _as_detections(output: dict[str, Tensor], size: tuple[int, int]) -> Detections:
    """What torchvision's detector returned for an image of size (height, width)."""
    masks = output.get(REGION_MASKS)
    return Detections(
        boxes=output["boxes"].cpu().numpy(),
        scores=output["scores"].cpu().numpy(),
        labels=output["labels"].cpu().numpy() - 1,  # without the background
        masks=None if masks is None else encode_masks(_whole_masks(masks, output["boxes"], size)),
    )


def _whole_masks(masks: Tensor, boxes: Tensor, size: tuple[int, int]) -> Iterator[NDArray[np.bool_]]:
    """Masks (H, W) of the image from masks (N, 1, M, M) of boxes (N, 4), one at a time: together they may be large."""
    for i in range(len(masks)):
        whole = paste_masks_in_image(masks[i : i + 1], boxes[i : i + 1], size)
        yield (whole[0, 0] > MASK_THRESHOLD).cpu().numpy()
