from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from scfs.errors import UserError
from scfs.evaluate.settings import ARCHITECTURE
from scfs.setting_types import Auto, NewPath, Positive, Seed, Settings, Side, as_names

Names = Annotated[tuple[str, ...], BeforeValidator(as_names)]
Corner = Annotated[float, Field(ge=0, le=1)]
SUFFIXES = (".png", ".svg", ".pdf")
UNUSED = {  # by what is shown
    "jigsaw": ("views", "scale"),
    "box": ("views", "scale"),
    "components": ("views", "scale", "scales"),
}


class Attend(Settings):
    """Whose attention is drawn or scored, on which images, for which queries."""

    data: str = Field(
        "",
        description="images, as data.source of pretrain; empty: the first run's; for --score, scenes or coco:DIR",
    )
    images: Names = Field((), description="image files to draw in place of --data")
    show: Literal["views", "jigsaw", "other", "box", "components"] = Field(
        "views",
        description="views: attention of local views on their image; jigsaw: of its 2 x 2 tiles, and of their mean; "
        "other: of local views on another image; box: of --box; components: principal components of maps as colours",
    )
    count: Positive = Field(6, description="images of --data to draw, spread over them")
    views: Positive = Field(4, description="local views of each image; with --score, queries of each kind")
    scale: Annotated[float, Field(gt=0, le=1)] = Field(
        0.1, description="area of a local view, as a fraction of the largest square of the image"
    )
    box: tuple[Corner, Corner, Corner, Corner] | None = Field(
        None, description="left, top, right and bottom of a query, from 0 to 1; for --show box"
    )
    other: str = Field(
        "", description="image file to search, for --show other; empty: one of the same class, or the next"
    )
    layers: Annotated[tuple[str, ...] | Auto, BeforeValidator(as_names)] = Field(
        "auto", description="layers to draw or score; auto: draw the deepest search layer, score all search layers"
    )
    size: Side | Auto = Field("auto", description="side to which images are resized; auto: three times that of queries")
    query_size: Side | Auto = Field("auto", description="side to which queries are resized; auto: as in training")
    scales: Literal["shared", "own"] = Field(
        "shared", description="colour scale of each layer: the same for all runs, or each run's own"
    )
    names: Names = Field((), description="titles of the runs; empty: the ends of their paths")
    score: bool = Field(False, description="score attention by the masks of --data instead of drawing it")
    backbone: str = Field("", description=ARCHITECTURE)
    network: Literal["teacher", "student"] = Field("teacher", description="network of a run to use")
    device: str = Field("auto", description="cpu, cuda, cuda:1, ...; auto: cuda if available")
    seed: Seed = Field(0, description="seed of local views and of random weights")
    out: NewPath = Field("", description="new PNG, SVG or PDF file; empty: a PNG file in the run folder, or in runs")

    @model_validator(mode="after")
    def _fits(self) -> "Attend":
        """Refuse settings that would have no effect."""
        if (self.box is None) == (self.show == "box"):
            raise UserError("--show box and --box LEFT TOP RIGHT BOTTOM go together; give both or neither.")
        if self.box is not None and (self.box[0] >= self.box[2] or self.box[1] >= self.box[3]):
            raise UserError(f"--box {' '.join(map(str, self.box))} is empty; give left < right and top < bottom.")
        if self.other and self.show != "other":
            raise UserError(f"--other {self.other} is the image to search; add --show other.")
        if self.images and self.data:
            raise UserError("--images and --data exclude each other; give one of them.")
        if self.score and (self.images or self.out or self.show != "views"):
            raise UserError("--score draws nothing; omit --images, --show and --out.")
        self.refuse_unused(UNUSED.get(self.show, ()), f"--show {self.show}")
        if self.images:
            self.refuse_unused(("count",), "--images")
        if self.score:
            self.refuse_unused(("count", "scales"), "--score")
        if self.out and not self.out.lower().endswith(SUFFIXES):
            raise UserError(f"--out {self.out} must end with {', '.join(SUFFIXES)}.")
        return self
