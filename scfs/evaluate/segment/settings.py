from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from scfs.errors import UserError
from scfs.evaluate.settings import Target
from scfs.setting_types import Auto, Count, NewPath, Positive, Side, Temperature, as_names

UNUSED = {"neighbours": ("steps", "lr"), "linear": ("k", "temperature", "memory")}  # by method


class Segment(Target):
    """How the maps of a frozen backbone are scored by the class of every pixel."""

    data: str = Field("", description="scenes, scenes:TRAIN,VAL, voc:DIR or coco:DIR; empty: the run's own")
    layers: Annotated[tuple[str, ...] | Auto, BeforeValidator(as_names)] = Field(
        "auto", description="layers whose maps are used together; auto: the two deepest search layers"
    )
    size: Side | Auto = Field(
        "auto",
        description="side to which whole images are resized; auto: as in training, or more for 16 positions per side "
        "of the largest map",
    )
    method: Literal["both", "neighbours", "linear"] = Field("both", description="how pixels are classified")
    k: Positive = Field(30, description="neighbours of a position that vote")
    temperature: Temperature = Field(0.02, description="of the votes")
    memory: Positive = Field(32768, description="positions of train maps to search at most; more are sampled")
    steps: Positive = Field(500, description="of the linear layer's training")
    batch_size: Positive = Field(16, description="images per step, over all processes; at most all images")
    lr: Temperature = Field(0.1, description="learning rate of the linear layer")
    show: Count = Field(0, description="val images to draw with their predictions")
    out: NewPath = Field(
        "", description="new PNG file of that picture; empty: segment.png in the run folder, or in runs"
    )

    @model_validator(mode="after")
    def _fits(self) -> "Segment":
        """Refuse settings that would have no effect."""
        if self.out and not self.show:
            raise UserError(f"--out {self.out} is the file of the picture; add --show and the number of images.")
        if self.out and not self.out.lower().endswith(".png"):
            raise UserError(f"--out {self.out} is not a PNG file; give a name that ends with .png.")
        self.refuse_unused(UNUSED.get(self.method, ()), f"--method {self.method}")
        return self
