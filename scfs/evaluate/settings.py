from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from scfs.errors import UserError
from scfs.setting_types import Auto, Count, Positive, Seed, Settings, Side, Temperature, as_names, each_once

Rates = Annotated[tuple[Temperature, ...], BeforeValidator(as_names), AfterValidator(each_once), Field(min_length=1)]
ARCHITECTURE = "timm model of another project's weights; empty: common ones are tried"


class Target(Settings):
    """Settings of whatever scores a backbone."""

    data: str = Field("", description="images to score on")
    backbone: str = Field("", description=ARCHITECTURE)
    network: Literal["teacher", "student"] = Field("teacher", description="network of a run to use")
    workers: Count | Auto = Field("auto", description="data loader workers; auto: as in pre-training")
    device: str = Field("auto", description="cpu, cuda, cuda:1, ...; auto: cuda if available")
    seed: Seed = Field(0, description="seed of everything random: held-out images, order, crops, random weights")


class Evaluation(Target):
    """Settings of every evaluation on labelled images."""

    data: str = Field(
        "", description="labelled images, such as a folder of class folders; empty: the run's own, if they have labels"
    )
    classes: str = Field("", description="file naming the class folders to use, one per line; empty: all")
    size: Side | Auto = Field("auto", description="side of the evaluated centre crop; auto: as in training, or 224")
    batch_size: Positive = Field(128, description="images per forward pass")


class Predict(Settings):
    """How a trained classifier or detector is applied."""

    network: Literal["teacher", "student"] = Field("teacher", description="network of a run to use (classifiers only)")
    batch_size: Positive = Field(128, description="images per forward pass (classifiers only)")
    workers: Count | Auto = Field("auto", description="data loader workers; auto: as in pre-training")
    device: str = Field("auto", description="cpu, cuda, cuda:1, ...; auto: cuda if available")
    show: Count = Field(8, description="images to draw beside a detector's OUT.json, with what was found in them")


class Embed(Settings):
    """How features are computed, and which images are searched for."""

    query: str = Field("", description="an image file: print the images most similar to it")
    nearest: Count = Field(0, description="how many of them; used with query")
    backbone: str = Field("", description=ARCHITECTURE)
    network: Literal["teacher", "student"] = Field("teacher", description="network of a run to use")
    size: Side | Auto = Field("auto", description="side of the embedded centre crop; auto: as in training, or 224")
    batch_size: Positive = Field(128, description="images per forward pass")
    workers: Count | Auto = Field("auto", description="data loader workers; auto: as in pre-training")
    device: str = Field("auto", description="cpu, cuda, cuda:1, ...; auto: cuda if available")
    seed: Seed = Field(0, description="seed of random weights, for random:NAME")

    @model_validator(mode="after")
    def _both_or_none(self) -> "Embed":
        if bool(self.query) != bool(self.nearest):
            raise UserError("--query IMAGE and --nearest K go together; give both or neither.")
        return self


class Export(Settings):
    """What is exported, and for what."""

    to: Literal["auto", "timm", "torchvision", "safetensors", "torch", "detectron2", "onnx", "transformers"] = Field(
        "auto", description="the format; auto: by OUT's suffix"
    )
    network: Literal["teacher", "student"] = Field("teacher", description="network of a run to use")
    backbone: str = Field("", description=ARCHITECTURE)
