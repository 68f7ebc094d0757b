import mmap
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from scfs.data.annotations import Objects
from scfs.data.scenes import CLASSES, SIZE, render_scene, scene_label
from scfs.data.source_repr import SourceRepr

Split = Literal["train", "val"]


class SceneSource(SourceRepr):
    """The built-in data set: every image is painted on first access, and cached.

    Painting costs as much as cropping the views, so pixels, boxes and masks are cached in memory that forked loader
    processes share (51 kB per scene); a process that is not forked has its own cache.
    """

    classes = object_classes = CLASSES
    category_ids = tuple(range(1, len(CLASSES) + 1))
    has_masks = True
    notes: tuple[str, ...] = ()
    seed = 0

    def __init__(self, split: Split, size: int):
        self.split, self.size = split, size
        self._allocate()

    def __len__(self) -> int:
        return self.size

    def __getstate__(self) -> tuple[Split, int]:
        return self.split, self.size

    def __setstate__(self, state: tuple[Split, int]) -> None:
        self.split, self.size = state
        self._allocate()

    def _allocate(self) -> None:
        self.pixels = np.frombuffer(mmap.mmap(-1, self.size * SIZE * SIZE * 3), np.uint8)
        self.pixels = self.pixels.reshape(self.size, SIZE, SIZE, 3)
        self.boxes = np.frombuffer(mmap.mmap(-1, self.size * 16), np.float32).reshape(self.size, 4)
        self.bits = np.frombuffer(mmap.mmap(-1, self.size * SIZE * SIZE // 8), np.uint8).reshape(self.size, -1)
        self.painted = np.frombuffer(mmap.mmap(-1, self.size), np.bool_)

    def _paint(self, index: int) -> None:
        if not self.painted[index]:
            scene = render_scene(self.seed, self.split, index)
            self.pixels[index], self.boxes[index] = scene.image, scene.boxes[0]
            self.bits[index] = np.packbits(scene.masks)
            self.painted[index] = True  # last, because other processes may be reading

    def image(self, index: int) -> Image.Image:
        """The scene as an image."""
        self._paint(index)
        return Image.fromarray(self.pixels[index].copy())

    def label(self, index: int) -> int:
        """The class of the scene's object."""
        return scene_label(self.seed, self.split, index)

    def name(self, index: int) -> str:
        """The split and the index in it."""
        return f"scenes/{self.split}/{index}"

    def objects(self, index: int) -> Objects:
        """The scene's one object."""
        self._paint(index)
        return Objects(
            boxes=self.boxes[index : index + 1].copy(),
            labels=np.array([self.label(index)], np.int64),
            crowd=np.zeros(1, np.bool_),
            difficult=np.zeros(1, np.bool_),
            areas=self._mask(index).sum(axis=(1, 2)).astype(np.float32),
            ids=np.array([index + 1], np.int64),
        )

    def masks(self, index: int) -> NDArray[np.bool_]:
        """The mask of the object's visible part: (1, H, W)."""
        self._paint(index)
        return self._mask(index)

    def _mask(self, index: int) -> NDArray[np.bool_]:
        return np.unpackbits(self.bits[index]).reshape(1, SIZE, SIZE).astype(np.bool_)

    def image_size(self, index: int) -> tuple[int, int]:  # noqa: ARG002
        """Width and height."""
        return SIZE, SIZE

    def image_id(self, index: int) -> int:
        """The index in the split."""
        return index
