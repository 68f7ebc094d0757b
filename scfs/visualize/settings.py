from pydantic import Field

from scfs.config import Settings


class Report(Settings):
    """What a report shows."""

    data: str = Field("", description="the images of the run, if they have moved; as data.source of pretrain")
