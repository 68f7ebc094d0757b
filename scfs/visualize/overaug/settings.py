from typing import Literal

from pydantic import Field, model_validator

from scfs.errors import UserError
from scfs.evaluate.settings import ARCHITECTURE
from scfs.setting_types import Auto, CropScale, NewPath, Positive, Seed, Settings, Side

SUFFIXES = (".png", ".svg", ".pdf")
NOT_AUDITED = ("local_scale", "class_names", "show")


class Overaug(Settings):
    """How over-augmented views are compared with their images, or crop scales are audited."""

    data: str = Field("", description="images, with labels or without; empty: the run's own")
    audit: bool = Field(
        False,
        description="compare views of every crop scale with their images, and suggest scales; needs no classifier",
    )
    images: Positive = Field(100, description="images at most, evenly spaced")
    views: Positive = Field(8, description="local views of each image; with audit, at each scale")
    show: Positive = Field(4, description="images in the picture")
    size: Side | Auto = Field("auto", description="side to which whole images are resized; auto: as in training")
    local_scale: CropScale | Auto = Field("auto", description="area of local crops; auto: the run's, or 0.05-0.14")
    class_names: str = Field(
        "", description="file with the names of the classifier's classes, one per line; empty: its own or the data's"
    )
    out: NewPath = Field("", description="new PNG, SVG or PDF file; empty: a PNG file in the run folder, or in runs")
    backbone: str = Field("", description=ARCHITECTURE)
    network: Literal["teacher", "student"] = Field("teacher", description="network of a run to use")
    device: str = Field("auto", description="cpu, cuda, cuda:1, ...; auto: cuda if available")
    seed: Seed = Field(0, description="seed of views and of random weights")

    @model_validator(mode="after")
    def _fits(self) -> "Overaug":
        """Refuse settings that would have no effect, and files of other kinds."""
        if self.audit:
            self.refuse_unused(NOT_AUDITED, "--audit")
        if self.out and not self.out.lower().endswith(SUFFIXES):
            raise UserError(f"--out {self.out} is not a picture; give a name that ends with {', '.join(SUFFIXES)}.")
        if self.local_scale != "auto" and self.local_scale[0] > self.local_scale[1]:
            raise UserError(f"local_scale {self.local_scale} must be ascending: the smallest area, then the largest.")
        return self
