from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from scfs.evaluate.settings import Evaluation
from scfs.setting_types import Positive, Temperature, as_names, each_once

Neighbours = Annotated[tuple[Positive, ...], BeforeValidator(as_names), AfterValidator(each_once), Field(min_length=1)]


class Knn(Evaluation):
    """How a backbone is scored by its nearest neighbours. Defaults are the paper's protocol."""

    k: Neighbours = Field((10, 20, 100, 200), description="numbers of neighbours")
    temperature: Temperature = Field(0.07, description="of the votes: exp(cosine / temperature)")
    layers: Literal["final", "all"] = Field(
        "final", description="features to score; all: those of each search layer too"
    )
