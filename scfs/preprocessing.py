"""How images are prepared for a backbone: in every evaluation, and as recorded in an exported file."""

import contextlib
import math
from collections.abc import Mapping
from typing import NamedTuple

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
INTERPOLATIONS = ("nearest", "bilinear", "bicubic", "box", "hamming", "lanczos")
MIN_STD = 1e-6
USUAL_SIZE = 224  # if it is unknown what a network was trained on


def resized_side(size: int) -> int:
    """The length to which the shorter side is resized before a centre crop: 256 for the paper's 224."""
    return round(size * 256 / 224)


class Preprocessing(NamedTuple):
    """Resize the shorter side to about size / crop_pct, crop the centre, subtract the mean and divide by std."""

    size: int = USUAL_SIZE
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD
    interpolation: str = "bicubic"

    @property
    def crop_pct(self) -> float:
        """The fraction of the resized side that is cropped, for timm, which rounds size / crop_pct down.

        0.875 if that gives the side that is used here, otherwise a number that does.
        """
        side = resized_side(self.size)
        if math.floor(self.size / 0.875) == side:
            return 0.875
        return math.floor(10_000 * self.size / side) / 10_000

    def as_metadata(self) -> dict[str, str]:
        """For the header of a safetensors file, which holds only strings."""
        mean, std = (",".join(map(str, values)) for values in (self.mean, self.std))
        return {"mean": mean, "std": std, "crop_pct": str(self.crop_pct), "interpolation": self.interpolation}

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, str], size: int | None) -> "Preprocessing":
        """From a header, with the defaults for what is missing or cannot be read."""
        interpolation = metadata.get("interpolation", "")
        found = cls(size or USUAL_SIZE, interpolation=interpolation if interpolation in INTERPOLATIONS else "bicubic")
        with contextlib.suppress(KeyError, ValueError):
            mean, std = (tuple(map(float, metadata[key].split(","))) for key in ("mean", "std"))
            if len(mean) == len(std) == 3 and all(map(math.isfinite, mean + std)) and min(std) > MIN_STD:
                return found._replace(mean=mean, std=std)
        return found

    def as_timm(self) -> str:
        """Arguments of timm's `pretrained_cfg_overlay`."""
        return (
            f"mean={self.mean}, std={self.std}, input_size={(3, self.size, self.size)}, crop_pct={self.crop_pct}, "
            f'crop_mode="center", interpolation="{self.interpolation}"'
        )

    def __str__(self) -> str:
        return (
            f"shorter side to {resized_side(self.size)} pixels ({self.interpolation}), centre crop of {self.size}, "
            f"values from 0 to 1, mean {self.mean}, standard deviation {self.std}"
        )
