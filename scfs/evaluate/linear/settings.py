from typing import Annotated

from pydantic import Field

from scfs.evaluate.settings import Evaluation, Rates
from scfs.setting_types import Epochs, Positive


class Linear(Evaluation):
    """How a linear probe of a frozen backbone is trained and scored. Defaults are the paper's protocol."""

    cached: bool = Field(False, description="use features of centre crops, computed once: the quick variant, for CPUs")
    epochs: Epochs = Field(100, description="passes over the train images")
    batch_size: Positive = Field(1024, description="images per step, over all processes; at most all images")
    rates: Rates = Field(
        (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0), description="learning rates to try, per 256 images"
    )
    held_out: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.1, description="fraction of each class of train on which the rate is chosen"
    )
    blocks: Positive = Field(4, description="for a ViT: how many last blocks give their class tokens")
