from pydantic import Field

from scfs.setting_types import NewPath, Settings


class Report(Settings):
    """What a report shows, and where it is written."""

    data: str = Field("", description="the images to show, if those of the run have moved; as data.source of pretrain")
    pictures: bool = Field(True, description="false: only log, results and settings, as when the images are gone")
    out: NewPath = Field(
        "", description="a new .html file; empty: report/index.html in the run, or of several runs runs/report.html"
    )
