from typing import Annotated

from pydantic import BeforeValidator, Field

from scfs.setting_types import Count, Positive, Settings, Side, as_names


class BenchData(Settings):
    """The views to time."""

    image: str = Field("", description="an image file; empty: a scene of 500 x 375 pixels as a JPEG")
    num_local_views: Count = Field(8, description="local views of an image")
    global_size: Side = Field(224, description="side of the two global views, in pixels")
    local_size: Side = Field(96, description="side of the local views, in pixels")
    rounds: Positive = Field(100, description="images per path; the medians are compared")
    write: str = Field("", description="Markdown page to add the table to")


class BenchStep(Settings):
    """The training steps to time."""

    backbone: str = Field("resnet50", description="a timm model, or a reduced one such as resnet10_half")
    batch_size: Positive = Field(4, description="images per step")
    num_local_views: Positive = Field(8, description="local views of an image")
    global_size: Side = Field(224, description="side of the two global views, in pixels")
    local_size: Side = Field(96, description="side of the local views, in pixels")
    out_dim: Positive = Field(65536, description="outputs of the data head")
    rounds: Positive = Field(5, description="steps per job; the medians are compared")
    warm_up: Count = Field(4, description="steps per job before that, while the heap still grows")
    peers: bool = Field(False, description="also time lightly's DINO; needs benchmarks/requirements.txt")
    keep_memory: bool = Field(True, description="reuse freed memory, as pretrain does; false: return it to the system")
    write: str = Field("", description="Markdown page to add the table to")


class BenchMemory(Settings):
    """The steps whose memory and time are measured."""

    backbone: str = Field("resnet50", description="a timm model, or a reduced one such as resnet10_half")
    batch_sizes: Annotated[tuple[Positive, ...], BeforeValidator(as_names)] = Field((4,), description="images per step")
    num_local_views: Positive = Field(8, description="local views of an image")
    global_size: Side = Field(224, description="side of the two global views, in pixels")
    local_size: Side = Field(96, description="side of the local views, in pixels")
    out_dim: Positive = Field(65536, description="outputs of the data head")
    rounds: Count = Field(0, description="further steps, timed; 0: only memory")
    released: bool = Field(True, description="also measure the released variant of scfs")
    write: str = Field("", description="Markdown page to add the table to")


class BenchGrowth(Settings):
    """The step whose growth is measured."""

    backbone: str = Field("resnet18", description="a timm model, or a reduced one such as resnet10_half")
    rounds: Positive = Field(3, description="steps per point; the medians are compared")
    write: str = Field("", description="Markdown page to add the tables to; the plot goes beside it, as growth.png")
