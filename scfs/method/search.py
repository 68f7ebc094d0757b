import torch
import torch.nn.functional as F
from torch import Tensor
from torchvision.ops import roi_align

# G global views, N local views, V any views, B images per process,
# C channels, H W (h w) map height and width, K head outputs

# Differs from the paper: the paper does not say how `roi-crop` treats local views outside the global view; such pairs
# have weight 0.
MIN_OVERLAP = 0.1  # fraction of a local view's area that must lie inside the global view for the pair to count


def upcast(x: Tensor) -> Tensor:
    """Half precision to float32; float32 and float64 are returned unchanged."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


@torch.no_grad()
def search_attention(query_maps: Tensor, key_maps: Tensor) -> Tensor:
    """Cosine similarity of each pooled query map with every position of each key map (Eqs. 7-8).

    query_maps: (N, B, C, h, w), student. key_maps: (G, B, C, H, W), teacher. Returns (G, N, B, H, W).
    """
    with torch.autocast(query_maps.device.type, enabled=False):  # cosines need float32
        queries = F.normalize(upcast(query_maps).mean(dim=(-2, -1)), dim=-1)  # (N, B, C)
        keys = F.normalize(upcast(key_maps), dim=2)  # (G, B, C, H, W)
        return torch.einsum("nbc,gbchw->gnbhw", queries, keys)  # in [-1, 1]


def box_in_view(boxes: Tensor, view_boxes: Tensor, view_flips: Tensor) -> tuple[Tensor, Tensor]:
    """Boxes of an image in the coordinates of a view of it, clipped to the view, and the fraction of each inside.

    boxes, view_boxes: (..., 4) as x0 y0 x1 y1 in the image; view_flips: (...) bool. They broadcast.
    Returns boxes (..., 4) in the view, from 0 to 1, flipped where the view is, and fractions (...) of each box's area.
    """
    boxes, view_boxes = torch.broadcast_tensors(boxes, view_boxes)
    origin, extent = view_boxes[..., :2], view_boxes[..., 2:] - view_boxes[..., :2]
    low = ((boxes[..., :2] - origin) / extent).clamp(0, 1)  # (..., 2)
    high = ((boxes[..., 2:] - origin) / extent).clamp(0, 1)
    inside = ((high - low) * extent).prod(dim=-1) / (boxes[..., 2:] - boxes[..., :2]).prod(dim=-1)
    clipped = torch.cat([low, high], dim=-1)
    x0, y0, x1, y1 = clipped.unbind(dim=-1)
    flipped = torch.stack([1 - x1, y0, 1 - x0, y1], dim=-1)
    return torch.where(view_flips.unsqueeze(-1), flipped, clipped), inside


@torch.no_grad()
def roi_maps(key_maps: Tensor, boxes: Tensor, size: tuple[int, int]) -> Tensor:
    """Crop the box of each local view from the maps of the global views by RoIAlign: the paper's row "ROI crop".

    key_maps: (G, B, C, H, W). boxes: (G, N, B, 4) in the global views, from 0 to 1. Returns (G, N, B, C, *size).
    The result is oriented as the global view, even if only one of the two views is flipped.
    """
    lead = boxes.shape[:3]
    num_views, num_images, _, height, width = key_maps.shape
    maps = torch.arange(num_views * num_images, device=boxes.device).unflatten(0, (num_views, 1, num_images))
    dtype = torch.promote_types(key_maps.dtype, torch.float32)  # bfloat16 has no integers beyond 256
    # Filled on the device: a copy of a tensor from the host would wait for the device.
    size_of_map = (torch.full((1,), side, device=boxes.device, dtype=dtype) for side in (width, height))
    scale = torch.cat([*size_of_map]).repeat(2)
    rois = torch.cat([maps.expand(lead).unsqueeze(-1).to(scale), boxes * scale], dim=-1)  # (G, N, B, 5)
    cropped = roi_align(key_maps.flatten(0, 1), rois.flatten(0, 2), size, sampling_ratio=2, aligned=True)
    return cropped.unflatten(0, lead)


def pair_weights(inside: Tensor) -> Tensor:
    """Weights (G, N, B) of pairs from overlaps (G, N, B): 1 from `MIN_OVERLAP` on, otherwise 0."""
    return (inside >= MIN_OVERLAP).to(inside.dtype)
