"""Each function and module of the method against its equation written as loops, in float64."""

import math

import loops
import pytest
import torch
from toy_method import close, normal, tensor

from scfs.method.losses import (
    PairWeights,
    agreement,
    entropy,
    mean_probs,
    pixel_spread,
    search_loss,
    separation,
    sharpen,
    spread,
    used_outputs,
    view_loss,
)
from scfs.method.search import box_in_view, pair_weights, roi_maps, search_attention

G, N, B, C, K = 2, 3, 2, 4, 6


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


# --- Search


def test_search_attention():
    query_maps, key_maps = normal(N, B, C, 2, 3), normal(G, B, C, 4, 5)
    expected = [
        [
            [loops.attention(query_maps[n, b].tolist(), key_maps[g, b].tolist()) for b in range(B)]  # (B, H, W)
            for n in range(N)
        ]
        for g in range(G)
    ]
    close(search_attention(query_maps, key_maps), tensor(expected))


def test_attention_is_a_cosine():
    """1 where a key points along the query, whatever its length, -1 where against it, 0 at an empty position."""
    query_maps = normal(1, 1, C, 2, 2)
    query = query_maps.mean(dim=(-2, -1))[0, 0]
    key_maps = torch.stack([3 * query, -0.1 * query, 0 * query], dim=-1).reshape(1, 1, C, 1, 3)
    close(search_attention(query_maps, key_maps), tensor([1, -1, 0]).reshape(1, 1, 1, 1, 3))


def test_targets_are_found_without_gradient():
    query_maps, key_maps = normal(N, B, C, 2, 3).requires_grad_(), normal(G, B, C, 4, 5).requires_grad_()
    assert not search_attention(query_maps, key_maps).requires_grad
    assert not roi_maps(key_maps, torch.rand(G, N, B, 4, dtype=torch.float64), (2, 3)).requires_grad


# --- Region of interest


BOXES = {  # local box, global box
    "inside": ([0.3, 0.4, 0.5, 0.7], [0.1, 0.2, 0.9, 0.8]),
    "same": ([0.1, 0.2, 0.9, 0.8], [0.1, 0.2, 0.9, 0.8]),
    "beyond the left and top": ([0.0, 0.0, 0.4, 0.5], [0.1, 0.2, 0.9, 0.8]),
    "beyond the right and bottom": ([0.7, 0.5, 1.0, 1.0], [0.1, 0.2, 0.9, 0.8]),
    "around": ([0.0, 0.0, 1.0, 1.0], [0.3, 0.35, 0.6, 0.5]),
    "a corner, a 25th of it": ([0.8, 0.7, 1.0, 1.0], [0.3, 0.2, 0.84, 0.76]),
    "beside": ([0.0, 0.3, 0.2, 0.6], [0.3, 0.2, 0.9, 0.8]),
    "apart both ways": ([0.0, 0.0, 0.1, 0.1], [0.3, 0.2, 0.9, 0.8]),
}


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("case", BOXES)
def test_box_in_view(case, flip):
    box, view = BOXES[case]
    expected_box, expected_share = loops.box_in_view(box, view, flip)
    found, inside = box_in_view(tensor(box), tensor(view), torch.tensor(flip))
    close(found, tensor(expected_box))
    close(inside, tensor(expected_share))


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("case", BOXES)
@pytest.mark.parametrize("size", [(2, 3), (1, 1), (5, 2)])
def test_roi_maps(case, flip, size):
    box, view = BOXES[case]
    key_map = normal(C, 4, 6)
    clipped, _ = loops.box_in_view(box, view, flip)
    cut = roi_maps(key_map.reshape(1, 1, C, 4, 6), tensor(clipped).reshape(1, 1, 1, 4), size)
    close(cut[0, 0, 0], tensor(loops.roi_align(key_map.tolist(), clipped, *size)))


def test_roi_maps_of_many_views_and_images():
    """Each cut comes from its own global view and image."""
    key_maps, corners = normal(G, B, C, 3, 4), torch.rand(G, N, B, 2, dtype=torch.float64)
    boxes = torch.cat([0.5 * corners, 0.5 + 0.5 * corners], dim=-1)
    cut = roi_maps(key_maps, boxes, (2, 2))
    assert cut.shape == (G, N, B, C, 2, 2)
    for g in range(G):
        for n in range(N):
            for b in range(B):
                expected = loops.roi_align(key_maps[g, b].tolist(), boxes[g, n, b].tolist(), 2, 2)
                close(cut[g, n, b], tensor(expected))


def test_a_flipped_view_crops_the_flipped_box():
    """Cutting from a mirrored map with a mirrored box gives the mirror image of the straight cut."""
    key_maps, view = normal(1, 1, C, 4, 6), tensor([0.1, 0.2, 0.9, 0.8])
    box = tensor([0.2, 0.3, 0.45, 0.6])
    cuts = []
    for maps, flip in ((key_maps, False), (key_maps.flip(-1), True)):
        clipped, _ = box_in_view(box, view, torch.tensor(flip))
        cuts.append(roi_maps(maps, clipped.reshape(1, 1, 1, 4), (3, 2)))
    close(cuts[1].flip(-1), cuts[0])


def test_pair_weights_start_at_a_tenth():
    close(pair_weights(tensor([0.0, 0.0999, 0.1, 0.1001, 1.0])), tensor([0, 0, 1, 1, 1]))


# --- Losses


@pytest.mark.parametrize("views", [2, 5])
def test_view_loss(views):
    student, teacher = normal(views, B, K).requires_grad_(), torch.softmax(normal(G, B, K), dim=-1)
    loss = view_loss(student, teacher, 0.1)
    expected = loops.view_loss(student, teacher.tolist(), 0.1)
    close(loss, expected)
    close(*(torch.autograd.grad(value, student)[0] for value in (loss, expected)))


@pytest.mark.parametrize("weights", ["none", "some", "all zero"])
def test_search_loss(weights):
    student, teacher = normal(N, B, K).requires_grad_(), torch.softmax(normal(G, N, B, K), dim=-1)
    weight = {"none": None, "some": (torch.rand(G, N, B) < 0.5).double(), "all zero": torch.zeros(G, N, B).double()}
    pairs = [
        (student[n, b], teacher[g, n, b].tolist(), 1.0 if weight[weights] is None else float(weight[weights][g, n, b]))
        for g in range(G)
        for n in range(N)
        for b in range(B)
    ]
    counted = None if weight[weights] is None else PairWeights(weight[weights], weight[weights].sum())
    loss, expected = search_loss(student, teacher, 0.1, counted), loops.search_loss(pairs, 0.1)
    close(loss, expected)
    close(*(torch.autograd.grad(value, student)[0] for value in (loss, expected)))


def test_sharpen():
    logits = normal(G, B, K)
    close(sharpen(logits, 0.05), tensor([[loops.softmax(row, None, 0.05) for row in v] for v in logits.tolist()]))


def test_entropy_and_spread():
    probs, pooled = torch.softmax(normal(G, B, K), dim=-1), normal(G, B, C)
    rows = probs.flatten(0, 1)
    close(entropy(probs), torch.stack([-(row * row.log()).sum() for row in rows]).mean() / math.log(K))
    close(entropy(torch.eye(K, dtype=torch.float64)), tensor(0.0))
    mean = torch.stack(list(rows)).mean(dim=0)
    close(mean_probs(probs), mean)
    close(used_outputs(mean), torch.stack([-p * p.log() for p in mean]).sum().exp())
    close(used_outputs(torch.full((K,), 1 / K, dtype=torch.float64)), tensor(float(K)))
    close(used_outputs(torch.eye(K, dtype=torch.float64)[0]), tensor(1.0))
    close(entropy(torch.full((G, K), 1 / K, dtype=torch.float64)), tensor(1.0))
    units = loops.unit_rows(pooled.flatten(0, 1))
    mean = sum(units) / len(units)
    close(spread(pooled), sum(((unit - mean) ** 2).sum().sqrt() for unit in units) / len(units))
    close(spread(pooled[:1, :1].expand(G, B, C)), tensor(0.0))


def test_separation():
    pooled = normal(G, B, C)
    units = [loops.unit_rows(view) for view in pooled[:2]]
    cosines = {(i, j): torch.dot(units[0][i], units[1][j]) for i in range(B) for j in range(B)}
    same = [cosine for (i, j), cosine in cosines.items() if i == j]
    different = [cosine for (i, j), cosine in cosines.items() if i != j]
    same, different = sum(same) / len(same), sum(different) / len(different)
    close(separation(pooled), (same - different) / (1 - different))
    close(separation(pooled[:1].expand(G, B, C)), tensor(1.0))
    close(separation(pooled[:, :1].expand(G, B, C)), tensor(0.0))


def test_pixel_spread():
    views = normal(G, B, 3, 4, 5)
    deviations = []
    for channel in views.flatten(0, 2):
        mean = channel.sum() / channel.numel()
        deviations.append((sum((pixel - mean) ** 2 for pixel in channel.flatten()) / channel.numel()).sqrt())
    close(pixel_spread(views), sum(deviations) / len(deviations))
    close(pixel_spread(views[..., :1, :1].expand(G, B, 3, 4, 5)), tensor(0.0))


def test_agreement():
    student, teacher = normal(G + N, B, C), normal(G, B, C)
    cosines = [
        torch.dot(*(loops.unit_rows(each[g, b][None])[0] for each in (student, teacher)))
        for g in range(G)
        for b in range(B)
    ]
    close(agreement(student, teacher), sum(cosines) / len(cosines))
