from typing import Any

from timm.layers.pos_embed import resample_abs_pos_embed
from torch import Tensor


def position_embeddings(net: Any, size: int) -> Tensor:
    """Those of a timm ViT for images of a size, resampled as timm does; other libraries do it otherwise."""
    grid = [size // extent for extent in net.patch_embed.patch_size]
    extra = 0 if net.no_embed_class else net.num_prefix_tokens
    embeddings: Tensor = net.pos_embed.detach()
    return resample_abs_pos_embed(embeddings, grid, list(net.patch_embed.grid_size), num_prefix_tokens=extra)
