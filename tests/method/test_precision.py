"""Half precision where it is harmless and nowhere else; float64 untouched."""

import pytest
import torch
from toy_method import CONTRASTS, TEACHER_TEMP, make_batch, make_model

from scfs.method.losses import Center, PairWeights, search_loss, view_loss
from scfs.method.search import box_in_view, roi_maps, search_attention, upcast

EVERY_MODE = [(contrast, variant) for contrast in CONTRASTS for variant in ("paper", "released")]
HALF_PRECISION = [torch.bfloat16, torch.float16]


def autocast():
    return torch.autocast("cpu", torch.bfloat16)


@pytest.mark.parametrize(("contrast", "variant"), EVERY_MODE)
def test_autocast_losses_are_float32_and_near(contrast, variant):
    model, batch = make_model(contrast, variant).float(), make_batch(num_images=4, dtype=torch.float32)
    expected = model(batch, TEACHER_TEMP).losses
    for center in model.centers():
        center.pending.zero_()
    with autocast():
        output = model(batch, TEACHER_TEMP)
    for name, loss in output.losses.items():
        assert loss.dtype == torch.float32, name
        assert loss.item() == pytest.approx(expected[name].item(), rel=0.05, abs=0.02), name
        assert loss != expected[name], f"{name} did not run under autocast"
    for value in output.diagnostics.values():
        assert value.dtype == torch.float32
    sum(output.losses.values()).backward()
    assert all(p.grad.isfinite().all() and p.grad.dtype == torch.float32 for p in model.student.parameters())
    for center in model.centers():
        assert center.pending.dtype == torch.float32
        assert center.pending[-1] > 0


@pytest.mark.parametrize(("contrast", "variant"), EVERY_MODE)
def test_float64_passes_through(contrast, variant):
    """No step of the way narrows: a change far below float32's reach shows in every loss."""
    model, batch = make_model(contrast, variant), make_batch()
    output = model(batch, TEACHER_TEMP)
    for value in [*output.losses.values(), *output.diagnostics.values()]:
        assert value.dtype == torch.float64
    nudged = batch._replace(global_views=batch.global_views * (1 + 1e-12), local_views=batch.local_views * (1 - 1e-12))
    with torch.no_grad():
        for parameter in model.teacher.parameters():
            parameter.mul_(1 + 1e-12)
    for name, loss in model(nudged, TEACHER_TEMP).losses.items():
        assert 1e-16 < (loss - output.losses[name]).abs() < 1e-7, name


def test_upcast():
    for dtype in HALF_PRECISION:
        assert upcast(torch.ones(1, dtype=dtype)).dtype == torch.float32
    for dtype in (torch.float32, torch.float64):
        x = torch.ones(1, dtype=dtype)
        assert upcast(x) is x


def pending(logits, weights):
    """What a center counts of weighted logits."""
    center = Center(logits.shape[-1], 0.9)
    center.sharpen(logits, 0.05, weights)
    return center.pending


@pytest.mark.parametrize("dtype", [torch.float32, *HALF_PRECISION])
def test_losses_and_search_ignore_autocast(dtype):
    """Given the same inputs they give the same outputs, to the last bit, and upcast half-precision ones."""
    torch.manual_seed(0)
    logits, searched = torch.randn(5, 3, 8).to(dtype), torch.softmax(torch.randn(2, 5, 3, 8), dim=-1)
    query_maps, key_maps = torch.randn(4, 3, 6, 2, 2).to(dtype), torch.randn(2, 3, 6, 4, 4).to(dtype)
    steps = {
        "view_loss": lambda: view_loss(logits, searched[:, 0], 0.1),
        "search_loss": lambda: search_loss(logits, searched, 0.1, PairWeights(torch.ones(2, 5, 3), torch.tensor(30.0))),
        "search_attention": lambda: search_attention(query_maps, key_maps),
        "Center.sharpen": lambda: Center(8, 0.9).sharpen(logits, 0.05),
        "Center.pending": lambda: pending(logits, torch.ones(5, 3)),
    }
    for name, step in steps.items():
        with autocast():
            cast = step()
        assert cast.dtype == torch.float32, name
        assert torch.equal(cast, step()), name


def test_roi_maps_distinguishes_many_images_in_half_precision():
    """The index of a map is not rounded with it: bfloat16 has no 257."""
    num_images = 200
    values = (torch.arange(2 * num_images) % 7).reshape(2, num_images, 1, 1, 1).expand(-1, -1, 1, 2, 2)
    boxes, _ = box_in_view(
        torch.tensor([0.2, 0.2, 0.8, 0.8]).expand(1, num_images, 4),
        torch.tensor([0.0, 0.0, 1.0, 1.0]).expand(2, 1, num_images, 4),
        torch.zeros(2, 1, num_images, dtype=torch.bool),
    )
    with autocast():
        cut = roi_maps(values.to(torch.bfloat16), boxes, (1, 1))
    torch.testing.assert_close(cut[:, 0].float(), values[..., :1, :1].float())
