from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from scfs.errors import UserError
from scfs.evaluate.detect.names import DetectorName
from scfs.evaluate.settings import Target
from scfs.setting_types import Auto, Count, Epochs, NewPath, Positive, PrecisionName, Side, as_names

Fractions = Annotated[tuple[Annotated[float, Field(gt=0, lt=1)], ...], BeforeValidator(as_names)]


class Detect(Target):
    """How a detector is trained from a backbone and scored. The defaults are those of the paper's Mask R-CNN, 1x."""

    data: str = Field("", description="images with boxes: scenes, voc:DIR or coco:DIR; empty: the run's own")
    start: Literal["weights", "scratch"] = Field(
        "weights", description="also --from; scratch: the same architecture with random weights"
    )
    detector: DetectorName | Auto = Field(
        "auto", description="auto: mask-rcnn-fpn if the data have masks, otherwise faster-rcnn-fpn"
    )
    epochs: Epochs = Field(12, description="passes over the train images")
    steps: Count = Field(0, description="length in steps, instead of epochs; 0: by epochs")
    batch_size: Positive = Field(16, description="images per step, over all processes; at most all images")
    accumulate: Positive = Field(1, description="micro-batches per step: less memory, but batch norms of fewer images")
    lr: Annotated[float, Field(gt=0)] = Field(0.02, description="learning rate per 16 images")
    drops: Fractions = Field((2 / 3, 8 / 9), description="when the rate falls to a tenth, as fractions of the training")
    warmup_steps: Count | Auto = Field("auto", description="auto: 1000, but at most a tenth of the training")
    weight_decay: Annotated[float, Field(ge=0)] = Field(1e-4, description="weight decay, except on biases and norms")
    clip_norm: Annotated[float, Field(gt=0)] | Literal["off"] = Field(
        "off", description="largest norm of all gradients together"
    )
    sizes: Annotated[tuple[Side, ...] | Auto, BeforeValidator(as_names)] = Field(
        "auto",
        description="shorter sides that training images are resized to, one of them at random; the last is also that "
        "of scored images; auto: 480 to 800, but at most 5/3 of the usual shorter side of the data",
    )
    max_size: Side = Field(1333, description="longer side at most")
    channels: Positive | Auto = Field(
        "auto", description="of the feature pyramid and its heads; auto: 256, or 64 for a thin backbone"
    )
    regions: Positive | Auto = Field(
        "auto", description="regions sampled per training image; auto: 512, or 128 for a thin backbone"
    )
    metric: Literal["auto", "coco", "voc"] = Field(
        "auto", description="auto: voc (11 points, 2007) for voc:DIR, otherwise coco"
    )
    precision: PrecisionName = Field("float32", description="arithmetic of training; half precision by autocast")
    show: Count = Field(0, description="val images to draw, ground truth beside predictions")
    out: NewPath = Field("", description="folder for the detector; empty: detect, detect-2, ... in the run, or in runs")

    @model_validator(mode="after")
    def _ascending(self) -> "Detect":
        for name, values in (("drops", self.drops), ("sizes", self.sizes)):
            if values != "auto" and list(values) != sorted(set(values)):
                raise UserError(f"{name} {', '.join(map(str, values))} must go from small to large, each once.")
        if self.batch_size % self.accumulate:
            raise UserError(f"batch_size {self.batch_size} is not divisible by accumulate {self.accumulate}.")
        return self
