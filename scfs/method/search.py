import torch
import torch.nn.functional as F
from torch import Tensor
from torchvision.ops import roi_align

# G global views, N local views, V any views, B images per process,
# C channels, H W (h w) map height and width, K head outputs

# Differs from the paper: it does not say what becomes of local views outside the global one.
MIN_OVERLAP = 0.1  # share of a local view that a global view must hold for the pair to count


def upcast(x: Tensor) -> Tensor:
    """Half precision to float32; float32 and float64 stay."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


@torch.no_grad()
def search_attention(query_maps: Tensor, key_maps: Tensor) -> Tensor:
    """Similarity of each query view to every place of each key view (Eqs. 7-8).

    query_maps: (N, B, C, h, w), student. key_maps: (G, B, C, H, W), teacher. Returns (G, N, B, H, W).
    """
    with torch.autocast(query_maps.device.type, enabled=False):  # half precision loses the cosine
        queries = F.normalize(upcast(query_maps).mean(dim=(-2, -1)), dim=-1)  # (N, B, C)
        keys = F.normalize(upcast(key_maps), dim=2)  # (G, B, C, H, W)
        return torch.einsum("nbc,gbchw->gnbhw", queries, keys)  # cosine, in [-1, 1]


def box_in_view(boxes: Tensor, view_boxes: Tensor, view_flips: Tensor) -> tuple[Tensor, Tensor]:
    """Where boxes of the image lie inside a view of it, clipped to the view, and how much of each is inside.

    boxes, view_boxes: (..., 4) as x0 y0 x1 y1 in the image; view_flips: (...) bool. They broadcast.
    Returns boxes (..., 4) in the view, from 0 to 1, mirrored where the view is; and the share (...) of each box's area.
    """
    boxes, view_boxes = torch.broadcast_tensors(boxes, view_boxes)
    origin, extent = view_boxes[..., :2], view_boxes[..., 2:] - view_boxes[..., :2]
    low = ((boxes[..., :2] - origin) / extent).clamp(0, 1)  # (..., 2)
    high = ((boxes[..., 2:] - origin) / extent).clamp(0, 1)
    inside = ((high - low) * extent).prod(dim=-1) / (boxes[..., 2:] - boxes[..., :2]).prod(dim=-1)
    straight = torch.cat([low, high], dim=-1)
    x0, y0, x1, y1 = straight.unbind(dim=-1)
    mirrored = torch.stack([1 - x1, y0, 1 - x0, y1], dim=-1)
    return torch.where(view_flips.unsqueeze(-1), mirrored, straight), inside


@torch.no_grad()
def roi_maps(key_maps: Tensor, boxes: Tensor, size: tuple[int, int]) -> Tensor:
    """Cut each local view's place out of the global views' maps: the ROI ablation's stand-in for the search.

    key_maps: (G, B, C, H, W). boxes: (G, N, B, 4) in the global views, from 0 to 1. Returns (G, N, B, C, *size).
    The cut keeps the teacher's orientation, mirrored or not.
    """
    lead = boxes.shape[:3]
    num_views, num_images, _, height, width = key_maps.shape
    maps = torch.arange(num_views * num_images, device=boxes.device).unflatten(0, (num_views, 1, num_images))
    dtype = torch.promote_types(key_maps.dtype, torch.float32)  # bfloat16 counts to 256 and no further
    scale = torch.tensor([width, height, width, height], device=boxes.device, dtype=dtype)
    rois = torch.cat([maps.expand(lead).unsqueeze(-1).to(scale), boxes * scale], dim=-1)  # (G, N, B, 5)
    cut = roi_align(key_maps.flatten(0, 1), rois.flatten(0, 2), size, sampling_ratio=2, aligned=True)
    return cut.unflatten(0, lead)


def pair_weights(inside: Tensor) -> Tensor:
    """1 for each pair that shares enough of the image, 0 for the others: (G, N, B) shares to (G, N, B) weights."""
    return (inside >= MIN_OVERLAP).to(inside.dtype)
