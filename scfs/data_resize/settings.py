from typing import Annotated

from pydantic import Field

from scfs.setting_types import Auto, Count, Positive, Settings, Side


class ResizeData(Settings):
    """How large the copies are."""

    side: Side = Field(256, description="shorter side of the copies, in pixels; smaller images are copied as they are")
    quality: Annotated[int, Field(ge=1, le=100)] = Field(95, description="JPEG quality of the copies")
    max_megapixels: Positive = Field(100, description="larger images count as unreadable, as in pre-training")
    workers: Count | Auto = Field("auto", description="processes; auto: one per core, at most 8")
