"""Draws label maps beside their images; nothing is computed here."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.patches import Patch
from numpy.typing import NDArray

from scfs.visualize.grid import TITLE, add_titles, grid, save_figure, shortened

Pixels = NDArray[np.uint8]
BACKGROUND, VOID, VOID_COLOUR = 0, 255, (224, 224, 192)
OPACITY = 0.7  # of classes over the grey image
MAX_NAMED = 24  # classes in the legend


class SegmentedPicture(NamedTuple):
    """An image and label maps of it, by title."""

    image: Pixels  # (H, W, 3)
    label_maps: Mapping[str, Pixels]  # (H, W) each


def save_segmentations(path: Path, pictures: Sequence[SegmentedPicture], classes: Sequence[str]) -> None:
    """Each row: an image, then its label maps over the image in grey; below, the colours of the classes."""
    names = list(pictures[0].label_maps)
    figure, axes = grid(len(pictures), 1 + len(names))
    for picture, cells in zip(pictures, axes, strict=True):
        cells[0].imshow(picture.image)
        for cell, label_map in zip(cells[1:], picture.label_maps.values(), strict=True):
            cell.imshow(coloured(picture.image, label_map))
    add_titles(axes[0], ["image", *names])
    present = np.unique(np.concatenate([each.ravel() for picture in pictures for each in picture.label_maps.values()]))
    shown = [label for label in present.tolist() if label not in (BACKGROUND, VOID)][:MAX_NAMED]
    patches = [Patch(color=palette()[label] / 255, label=shortened(classes[label], 28)) for label in shown]
    if patches:
        figure.legend(
            handles=patches, loc="upper center", bbox_to_anchor=(0.5, 0), ncols=3, fontsize=TITLE, frameon=False
        )
    save_figure(figure, path, fit=True)


def coloured(image: Pixels, label_map: Pixels) -> Pixels:
    """The image in grey with the colour of each class over it; the background has none."""
    grey = image.mean(axis=-1, keepdims=True).repeat(3, axis=-1)
    opacity = np.where(label_map == BACKGROUND, 0.0, OPACITY)[..., None]
    return ((1 - opacity) * grey + opacity * palette()[label_map]).astype(np.uint8)


def palette() -> Pixels:
    """PASCAL VOC's colour of each class: (256, 3)."""
    labels, colours = np.arange(256), np.zeros((256, 3), np.uint8)
    for shift in range(8):  # three bits of a label at a time, from the highest bit of red, green and blue on
        for channel in range(3):
            colours[:, channel] |= (labels >> (3 * shift + channel) & 1).astype(np.uint8) << (7 - shift)
    colours[VOID] = VOID_COLOUR
    return colours
