from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from scfs.setting_types import Epochs, NewPath, Positive, Seed, Settings, as_names


class Ablate(Settings):
    """How the rows of a table are trained and scored; settings with a dot are the recipe's."""

    seeds: Annotated[tuple[Seed, ...], BeforeValidator(as_names)] = Field(
        (0, 1, 2), description="seeds; every row is trained with each"
    )
    locals: Annotated[tuple[Positive, ...], BeforeValidator(as_names)] = Field(
        (2, 4, 6, 8), description="numbers of local views, for table locals"
    )
    backbones: Annotated[tuple[str, ...], BeforeValidator(as_names)] = Field(
        (), description="timm models, for table backbones; none: those of the recipes"
    )
    data: str = Field("", description="labelled images to score on; empty: the recipe's")
    linear: Literal["live", "cached", "off"] = Field(
        "live", description="how linear probes are trained; off: not at all"
    )
    linear_epochs: Epochs = Field(100, description="passes of a linear probe over the train images")
    folder: NewPath = Field("", description="where runs, table and plot go; empty: runs/ablate-TABLE")
