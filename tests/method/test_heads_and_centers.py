"""Heads (Eqs. 9-10) and centers against the loops, in float64."""

import copy

import loops
import pytest
import torch
from toy_method import close, normal, randomised, tensor

from scfs.method.heads import ProjectionHead, SearchHead
from scfs.method.losses import Center

G, N, B, C, K = 2, 3, 2, 4, 6


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.mark.parametrize("batch_norm", [False, True])
def test_projection_head(batch_norm):
    head = randomised(ProjectionHead(C, K, hidden_dim=7, bottleneck_dim=3, batch_norm=batch_norm))
    pooled = normal(5, C)
    weights = dict(head.named_parameters())
    logits, expected = head(pooled), loops.projection_head(weights, pooled)
    close(logits, expected)
    assert len(weights) == (11 if batch_norm else 7)
    for value, expected_value in zip(*gradients(head, logits, expected), strict=True):
        close(value, expected_value)


def test_projection_head_is_initialised_as_dinos():
    head = ProjectionHead(16, 32, hidden_dim=64, bottleneck_dim=8)
    linear = [layer for layer in head.mlp if isinstance(layer, torch.nn.Linear)]
    assert [tuple(layer.weight.shape) for layer in linear] == [(64, 16), (64, 64), (8, 64)]
    for layer in linear:
        assert layer.weight.std().item() == pytest.approx(0.02, rel=0.15)
        assert not layer.bias.any()
    bound = 1 / 8**0.5  # the framework's own initialisation
    assert 0.9 * bound < head.last.weight.abs().max() <= bound
    assert head.last.bias is None


def test_search_head():
    head, maps = search_head(), normal(N, B, C, 2, 3)
    logits = head(maps)
    expected = loops.search_head(dict(head.named_parameters()), maps.flatten(0, 1)).unflatten(0, (N, B))
    close(logits, expected)
    for value, expected_value in zip(*gradients(head, logits, expected), strict=True):
        close(value, expected_value)


def test_search_head_with_attention():
    head, maps, attention = search_head(), normal(G, B, C, 2, 3), normal(G, N, B, 2, 3)
    searched = [
        loops.attended(attention[g, n, b].tolist(), maps[g, b].tolist())
        for g in range(G)
        for n in range(N)
        for b in range(B)
    ]
    logits = head(maps, attention)
    expected = loops.search_head(dict(head.named_parameters()), tensor(searched)).unflatten(0, (G, N, B))
    close(logits, expected)
    for value, expected_value in zip(*gradients(head, logits, expected), strict=True):
        close(value, expected_value)


def test_attention_inside_the_head_is_attention_times_maps():
    """Eq. 9 written out and fed as plain maps: the same logits and the same running statistics."""
    head, maps, attention = search_head(), normal(G, B, C, 2, 3), normal(G, N, B, 2, 3)
    other = copy.deepcopy(head)
    searched_maps = attention.unsqueeze(3) * maps.unsqueeze(1)  # (G, N, B, C, H, W)
    close(head(maps, attention), other(searched_maps.flatten(0, 1)).unflatten(0, (G, N)))
    for (name, buffer), other_buffer in zip(head.named_buffers(), other.buffers(), strict=True):
        torch.testing.assert_close(buffer, other_buffer, rtol=1e-10, atol=1e-12, msg=name)
        assert "running_mean" not in name or buffer.any(), name


def test_maps_are_not_normalised():
    """The length of the teacher's map matters, beyond what its batch norms take away."""
    head, maps, attention = search_head(), normal(G, B, C, 2, 3), normal(G, N, B, 2, 3)
    assert not torch.allclose(head(maps, attention), head(3 * maps, attention), rtol=1e-3)


def search_head():
    return randomised(SearchHead(C, K, hidden_dim=7, bottleneck_dim=3))


def gradients(head, *outputs):
    """The gradients of a random direction of each output."""
    direction = torch.randn_like(outputs[0])
    return [torch.autograd.grad((output * direction).sum(), list(head.parameters())) for output in outputs]


# --- Centers


def test_center_subtracts_then_moves_on_commit():
    center, logits = Center(K, 0.8).double(), normal(G, B, K)
    start = normal(K)
    center.value.copy_(start)
    expected = [[loops.softmax(row, start.tolist(), 0.05) for row in view] for view in logits.tolist()]
    close(center.sharpen(logits, 0.05), tensor(expected))
    close(center.value, start)
    center.commit()
    close(center.value, tensor(loops.moved_center(start.tolist(), logits.flatten(0, 1).tolist(), 0.8)))


def test_two_collections_and_one_commit_equal_one():
    """Micro-batches of unequal size, with different leading axes, move the center as one batch does."""
    first, second = normal(G, N, B, K), normal(G, B, K)
    split, whole = Center(K, 0.9).double(), Center(K, 0.9).double()
    split.sharpen(first, 0.05)
    split.sharpen(second, 0.05)
    whole.sharpen(torch.cat([first.flatten(0, 2), second.flatten(0, 1)]), 0.05)
    close(split.pending, whole.pending)
    for center in (split, whole):
        center.commit()
    close(split.value, whole.value)


def test_commit_forgets_what_was_collected():
    center, logits = Center(K, 0.9).double(), normal(2, G, B, K)
    expected = [0.0] * K
    for batch in logits:
        center.sharpen(batch, 0.05)
        center.commit()
        expected = loops.moved_center(expected, batch.flatten(0, 1).tolist(), 0.9)
        assert not center.pending.any()
    close(center.value, tensor(expected))


def test_sums_of_processes_add_up():
    """Pending sums and counts of two processes, added, give the mean over both."""
    logits = normal(2, G, B, K)
    ours, theirs = Center(K, 0.9).double(), Center(K, 0.9).double()
    ours.sharpen(logits[0], 0.05)
    theirs.sharpen(logits[1, :, :1], 0.05)
    ours.pending += theirs.pending
    ours.commit()
    seen = [*logits[0].flatten(0, 1).tolist(), *logits[1, :, :1].flatten(0, 1).tolist()]
    close(ours.value, tensor(loops.moved_center([0.0] * K, seen, 0.9)))


def test_logits_of_weight_0_do_not_move_the_center():
    center, logits = Center(K, 0.8).double(), normal(G, N, B, K)
    weights = torch.tensor([1.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 0.0, 1.0]).view(G, N, B)
    plain = Center(K, 0.8).double()
    close(center.sharpen(logits, 0.05, weights), plain.sharpen(logits, 0.05))  # only what is collected differs
    center.commit()
    seen = logits[weights > 0].tolist()
    close(center.value, tensor(loops.moved_center([0.0] * K, seen, 0.8)))


def test_a_center_is_unchanged_if_nothing_was_collected():
    center, start = Center(K, 0.8).double(), normal(K)
    center.value.copy_(start)
    center.sharpen(normal(G, B, K), 0.05, torch.zeros(G, B))
    center.commit()
    close(center.value, start)
    center.sharpen(normal(G, B, K), 0.05)
    center.discard()
    center.commit()
    close(center.value, start)
