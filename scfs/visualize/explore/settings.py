from typing import Annotated

from pydantic import Field

from scfs.evaluate.settings import Target
from scfs.setting_types import Auto, Positive, Side

Port = Annotated[int, Field(ge=0, lt=2**16)]
Neighbours = Annotated[int, Field(ge=0, le=24)]


class Explore(Target):
    """What the page shows, and where it listens."""

    data: str = Field("", description="images, as data.source of pretrain; empty: those of the first run")
    classes: str = Field("", description="file naming the class folders to use, one per line; empty: all")
    size: Side | Auto = Field(
        "auto",
        description="side of searched images; auto: three times query_size, so that a box of a third of an image is "
        "searched for at its own scale, but not less than in training",
    )
    query_size: Side | Auto = Field(
        "auto", description="side of queries; auto: as local views in training (global views if there were none), or 96"
    )
    neighbours: Neighbours = Field(6, description="nearest images that are searched too")
    sample: Positive = Field(500, description="images among which neighbours are found, evenly spaced")
    cache_megabytes: Positive = Field(512, description="memory for the keys of images, over all runs")
    port: Port = Field(0, description="of 127.0.0.1, where the page is served; 0: a free one")
