from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from scfs.evaluate.settings import Evaluation, Rates
from scfs.setting_types import Count, Epochs, NewPath, Positive, PrecisionName, as_names, each_once


class Finetune(Evaluation):
    """How a network is fine-tuned with labels and scored. A single rate and weight decay are used without a search."""

    start: Literal["weights", "scratch"] = Field(
        "weights", description="also --from; scratch: the same architecture with random weights"
    )
    fraction: Annotated[float, Field(gt=0, le=1)] = Field(
        1.0, description="fraction of each class whose labels are used"
    )
    images: str = Field(
        "",
        description="file naming the images whose labels are used, in place of fraction, as SimCLRv2's lists do",
    )
    epochs: Epochs = Field(60, description="passes over the labelled images")
    steps: Count = Field(0, description="length in steps, instead of epochs; 0: by epochs")
    batch_size: Positive = Field(256, description="images per step, over all processes; at most all images")
    rates: Rates = Field((0.003, 0.01, 0.03, 0.1), description="learning rates to try, per 256 images")
    weight_decays: Annotated[
        tuple[Annotated[float, Field(ge=0)], ...],
        BeforeValidator(as_names),
        AfterValidator(each_once),
        Field(min_length=1),
    ] = Field((0.0, 1e-4), description="weight decays to try with each")
    held_out: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.1, description="fraction of each class of train on which rate and weight decay are chosen"
    )
    metric: Literal["auto", "top1", "per_class"] = Field(
        "auto", description="auto: mean per class for aircraft and pets, top-1 otherwise"
    )
    precision: PrecisionName = Field("float32", description="arithmetic; half precision by autocast")
    out: NewPath = Field(
        "", description="folder for the network; empty: finetune, finetune-2, ... in the run, or in runs"
    )
