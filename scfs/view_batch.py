from typing import NamedTuple

import torch
from torch import Tensor

# G global views, N local views, B images per process


class ViewBatch(NamedTuple):
    """Views of B images, and where each was cropped. For one image, the same without the B axis.

    The loader passes these plain tensors to the method, so that neither depends on the other. Views leave the loader as
    uint8; `scfs.data.views.normalize_views` converts them to floats on the device.
    """

    global_views: Tensor  # (G, B, 3, 224, 224)
    local_views: Tensor  # (N, B, 3, 96, 96); N may be 0
    global_boxes: Tensor  # (G, B, 4) x0 y0 x1 y1 in the image, from 0 to 1
    local_boxes: Tensor  # (N, B, 4)
    global_flips: Tensor  # (G, B) bool
    local_flips: Tensor  # (N, B) bool
    colours: Tensor = torch.empty(0, 0, 0)  # (G + N, B, columns) on the CPU, if they are still to be applied

    def __repr__(self) -> str:
        kinds = {"global": self.global_views, "local": self.local_views}
        shown = (f"{name} {'x'.join(map(str, views.shape))}" for name, views in kinds.items())
        return f"ViewBatch({', '.join(shown)})"

    def contiguous(self) -> "ViewBatch":
        """The same with views whose channels are planes: the loader's are channels last."""
        return self._replace(global_views=self.global_views.contiguous(), local_views=self.local_views.contiguous())

    def to(self, device: torch.device) -> "ViewBatch":
        """The same on a device; a copy from pinned memory does not wait."""
        moved = ViewBatch(*(part.to(device, non_blocking=True) for part in self))
        return moved._replace(colours=self.colours)
