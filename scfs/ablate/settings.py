from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from scfs.config import Count, Positive, Settings, as_names


class Ablate(Settings):
    """How the rows of a table are trained and scored; settings with a dot are of the recipe."""

    seeds: Annotated[tuple[Count, ...], BeforeValidator(as_names)] = Field((0, 1, 2), description="a run of each row")
    locals: Annotated[tuple[Positive, ...], BeforeValidator(as_names)] = Field(
        (2, 4, 6, 8), description="numbers of local views, for the table of that name"
    )
    backbones: Annotated[tuple[str, ...], BeforeValidator(as_names)] = Field(
        (), description="timm models, for the table of that name; none: those of the recipes given"
    )
    data: str = Field("", description="labelled images to score on; empty: those of the recipe")
    linear: Literal["live", "cached", "off"] = Field("live", description="how linear probes are trained, if at all")
    linear_epochs: Positive = 100
    folder: str = Field("", description="where runs, table and plot go; empty: runs/ablate-TABLE")
