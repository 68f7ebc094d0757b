from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from scfs.config import Auto, Count, Positive, PrecisionName, Settings, Temperature, as_names
from scfs.errors import UserError

FOREIGN = "timm model that another project's weights are of; empty: the usual are tried"


class Evaluation(Settings):
    """What every evaluation of a backbone needs to know."""

    data: str = Field(
        "scenes", description="labelled images: as data.source of pretrain, such as a folder of class folders"
    )
    classes: str = Field("", description="file naming the class folders to use, one a line; empty: all")
    backbone: str = Field("", description=FOREIGN)
    size: Positive | Auto = Field("auto", description="side of the evaluated centre crop; auto: as in training, or 224")
    network: Literal["teacher", "student"] = "teacher"
    batch_size: Positive = 128
    workers: Count | Auto = "auto"
    device: str = "auto"
    seed: Count = Field(0, description="of everything that is drawn: held-out images, order, crops, random weights")


class Knn(Evaluation):
    """How a backbone is scored by its nearest neighbours. Defaults are the paper's protocol."""

    k: Annotated[tuple[Positive, ...], BeforeValidator(as_names)] = Field((10, 20, 100, 200), description="neighbours")
    temperature: Temperature = 0.07
    layers: Literal["final", "all"] = Field("final", description="features to score; all: of each search layer too")


class Linear(Evaluation):
    """How a linear probe of a frozen backbone is trained and scored. Defaults are the paper's protocol."""

    cached: bool = Field(False, description="features of centre crops, computed once: the quick variant, for CPUs")
    epochs: Positive = 100
    batch_size: Positive = Field(1024, description="images per step, over all processes; fewer if there are fewer")
    rates: Annotated[tuple[Temperature, ...], BeforeValidator(as_names), Field(min_length=1)] = Field(
        (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0), description="learning rates to try, per 256 images"
    )
    held_out: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.1, description="share of each class of train on which the rate is chosen"
    )
    blocks: Positive = Field(4, description="of a ViT: blocks whose class tokens are used, the last ones")


class Finetune(Evaluation):
    """How a whole network is trained with labels and scored. One rate and one weight decay leave nothing to choose."""

    start: Literal["weights", "scratch"] = Field(
        "weights", description="also --from; scratch: the same architecture with random weights"
    )
    fraction: Annotated[float, Field(gt=0, le=1)] = Field(1.0, description="share of each class whose labels are used")
    images: str = Field(
        "", description="file naming the images whose labels are used, as SimCLRv2's published lists do"
    )
    epochs: Positive = 60
    steps: Count = Field(0, description="length in steps instead; 0: by epochs")
    batch_size: Positive = Field(256, description="images per step, over all processes; fewer if there are fewer")
    rates: Annotated[tuple[Temperature, ...], BeforeValidator(as_names), Field(min_length=1)] = Field(
        (0.003, 0.01, 0.03, 0.1), description="learning rates to try, per 256 images"
    )
    weight_decays: Annotated[
        tuple[Annotated[float, Field(ge=0)], ...], BeforeValidator(as_names), Field(min_length=1)
    ] = Field((0.0, 1e-4), description="weight decays to try with each")
    held_out: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.1, description="share of each class of train on which rate and weight decay are chosen"
    )
    metric: Literal["auto", "top1", "per_class"] = Field(
        "auto", description="auto: mean per class for aircraft and pets, top-1 otherwise"
    )
    precision: PrecisionName = Field("float32", description="arithmetic; halves by autocast")
    out: str = Field("", description="folder for the network; empty: finetune, finetune-2, ... in the run, or in runs")


class Predict(Settings):
    """How a trained probe is applied."""

    network: Literal["teacher", "student"] = "teacher"
    batch_size: Positive = 128
    workers: Count | Auto = "auto"
    device: str = "auto"


class Embed(Settings):
    """How features are computed, and what is asked of them."""

    query: str = Field("", description="an image file: print the images that are most like it")
    nearest: Count = Field(0, description="how many of them; goes with query")
    backbone: str = Field("", description=FOREIGN)
    network: Literal["teacher", "student"] = "teacher"
    size: Positive | Auto = Field("auto", description="side of the embedded centre crop; auto: as in training, or 224")
    batch_size: Positive = 128
    workers: Count | Auto = "auto"
    device: str = "auto"
    seed: Count = Field(0, description="of random weights, for random:NAME")

    @model_validator(mode="after")
    def _both_or_none(self) -> "Embed":
        if bool(self.query) != bool(self.nearest):
            raise UserError("--query IMAGE and --nearest K go together: give both, or neither.")
        return self


class Export(Settings):
    """What is exported."""

    network: Literal["teacher", "student"] = "teacher"
    backbone: str = Field("", description=FOREIGN)
