from pydantic import Field, model_validator

from scfs.errors import UserError
from scfs.setting_types import Auto, Count, Fraction, NewPath, Positive, Settings

SUFFIXES = (".json", ".csv")


class CheckData(Settings):
    """What is wrong with images, and where it is written."""

    min_side: Count = Field(32, description="an image whose shorter side has fewer pixels is tiny")
    max_megapixels: Positive = Field(100, description="larger images count as unreadable, as in pre-training")
    max_unreadable: Fraction = Field(0.01, description="fraction of the images that may be, as in pre-training")
    show: Count = Field(5, description="names to print of each kind of problem; --out has all")
    workers: Count | Auto = Field("auto", description="data loader workers; auto: one per core, at most 8")
    out: NewPath = Field("", description="a .json or .csv file to write with every problem; .json has the summary too")

    @model_validator(mode="after")
    def _known_suffix(self) -> "CheckData":
        if self.out and not self.out.lower().endswith(SUFFIXES):
            raise UserError(f"--out {self.out} must end with {' or '.join(SUFFIXES)}.")
        return self
