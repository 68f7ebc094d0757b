from typing import Literal

DetectorName = Literal["faster-rcnn-c4", "faster-rcnn-fpn", "mask-rcnn-fpn"]
