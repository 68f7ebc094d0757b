import inspect

import torch
from torch import Tensor, nn

from scfs.backbones import Backbone
from scfs.errors import UserError


class ProbeFeatures(nn.Module):
    """The input of a linear probe: the pooled feature or, for a ViT, the class tokens of its last blocks."""

    def __init__(self, backbone: Backbone, blocks: int):
        super().__init__()
        self.backbone = backbone
        accepted = inspect.signature(backbone.net.forward_intermediates).parameters
        has_tokens = getattr(backbone.net, "cls_token", None) is not None and "return_prefix_tokens" in accepted
        self.blocks = blocks if has_tokens else 0
        if self.blocks > (depth := len(backbone.net.feature_info)):
            raise UserError(f"--blocks {blocks}: '{backbone.name}' has {depth} blocks; give at most that many.")

    def forward(self, images: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """images: (B, 3, H, W) -> (B, D)."""
        if not self.blocks:
            return self.backbone(images)
        found = self.backbone.net.forward_intermediates(
            images, indices=self.blocks, return_prefix_tokens=True, norm=True, intermediates_only=True
        )
        return torch.cat([prefix[:, 0] for _, prefix in found], dim=1), ()
