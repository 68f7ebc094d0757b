"""Every mode and variant against the loops: losses, gradients and centers of the whole forward pass."""

from dataclasses import replace

import pytest
import torch
from loops import box_in_view
from loops_modes import contrast_losses
from toy_method import CONTRASTS, TEACHER_TEMP, WITH_MAPS, centers_of, given_of, make_batch, make_model

from scfs.method.modes import plan_of

LOCAL_VIEWS = {  # that the mode allows; the modes without multi-crop ignore them
    "dino-no-multicrop": (0, 3),
    "dino": (0, 1, 3),
    "dino-multilayer": (0, 1, 3),
    "scfs": (1, 3),
    "roi-crop": (1, 3),
    "scfs-no-multicrop": (0, 3),
}


def check(contrast, variant, num_local_views, **options):
    model = make_model(contrast, variant, **options)
    batch = make_batch(num_local_views=num_local_views)
    expected, expected_centers = contrast_losses(contrast, variant, given_of(model, batch))
    losses = model(batch, TEACHER_TEMP).losses

    assert losses.keys() == expected.keys()
    for name, loss in losses.items():
        torch.testing.assert_close(loss, expected[name], rtol=1e-10, atol=1e-12, msg=lambda m, n=name: f"{n}: {m}")

    names, parameters = zip(*model.student.named_parameters(), strict=True)
    grads = torch.autograd.grad(sum(losses.values()), parameters, allow_unused=True)
    expected_grads = torch.autograd.grad(sum(expected.values()), parameters, allow_unused=True)
    assert any(grad is not None and grad.abs().max() > 1e-3 for grad in grads)
    for name, grad, expected_grad in zip(names, grads, expected_grads, strict=True):
        assert (grad is None) == (expected_grad is None), name
        if grad is not None:
            torch.testing.assert_close(
                grad, expected_grad, rtol=1e-8, atol=1e-10, msg=lambda m, n=name: f"gradient of {n}: {m}"
            )

    for center in model.centers():
        center.commit()
    centers = centers_of(model)
    assert centers.keys() == expected_centers.keys()
    for name, center in centers.items():
        assert center == pytest.approx(expected_centers[name], rel=1e-10, abs=1e-12), name


@pytest.mark.parametrize("variant", ["paper", "released"])
@pytest.mark.parametrize(("contrast", "num_local_views"), [(c, n) for c in CONTRASTS for n in LOCAL_VIEWS[c]])
def test_mode_equals_loops(contrast, num_local_views, variant):
    check(contrast, variant, num_local_views)


@pytest.mark.parametrize("variant", ["paper", "released"])
@pytest.mark.parametrize("contrast", WITH_MAPS)
def test_without_the_data_term(contrast, variant):
    check(contrast, variant, 3, data_term=False)


@pytest.mark.parametrize("layers", [(0,), (1,), (2,), (0, 2), (1, 2)])
@pytest.mark.parametrize("contrast", WITH_MAPS)
def test_search_layers(contrast, layers):
    check(contrast, "paper", 3, layers=layers)


@pytest.mark.parametrize("layers", [(1,), (0, 2)])
@pytest.mark.parametrize("contrast", ["scfs", "roi-crop", "scfs-no-multicrop"])
def test_search_layers_released(contrast, layers):
    check(contrast, "released", 3, layers=layers)


@pytest.mark.parametrize("variant", ["paper", "released"])
def test_multilayer_adds_the_terms_of_dino_multilayer(variant):
    """Half of its terms and half of those of the search; the center of a layer is moved by the logits of both."""
    batch = make_batch(num_images=3, num_local_views=2)
    models = [make_model(*mode) for mode in (("scfs", "paper"), ("dino-multilayer", "paper"), ("scfs", variant))]
    models.append(make_model("scfs", variant, multilayer=True))
    (_, views, search, both) = losses = [model(batch, TEACHER_TEMP).losses for model in models]
    scale = 0.5 if variant == "paper" else 1.0  # the released code's are half already
    assert both.keys() == {*views, *losses[0]}
    for layer in models[0].layers:
        torch.testing.assert_close(both[f"view/{layer}"], 0.5 * views[f"view/{layer}"])
        torch.testing.assert_close(both[f"search/{layer}"], scale * search[f"search/{layer}"])
    torch.testing.assert_close(both["view"], views["view"])
    for model in models:
        for center in model.centers():
            center.commit()
    of_search, of_views, _, of_both = (centers_of(model) for model in models)
    for layer in models[0].layers:
        counts = (2 * 2 * 3, 2 * 3) if variant == "paper" else (0, 1)  # the released search has no center
        pairs = zip(of_search[layer], of_views[layer], strict=True)
        expected = [(counts[0] * s + counts[1] * v) / sum(counts) for s, v in pairs]
        assert of_both[layer] == pytest.approx(expected)


@pytest.mark.parametrize("contrast", ["dino", "dino-no-multicrop", "dino-multilayer"])
def test_multilayer_changes_nothing_without_a_search(contrast):
    assert plan_of(contrast, multilayer=True) == plan_of(contrast)


def test_multilayer_without_local_views_contrasts_global_views():
    assert plan_of("scfs-no-multicrop", multilayer=True).layer_views == ("global",)


@pytest.mark.parametrize("contrast", ["dino-no-multicrop", "dino", "scfs"])
def test_batch_norm_in_the_projection_head(contrast):
    """Its statistics too come from one kind of view at a time."""
    check(contrast, "paper", 2, batch_norm=True)


def test_other_seeds():
    for seed in (3, 4):
        check("scfs", "paper", 2, seed=seed)
        check("roi-crop", "paper", 2, seed=seed)


def test_roi_batch_has_every_kind_of_pair():
    """Or the comparison of roi-crop would leave the clip, the weights or the flips untried."""
    batch = make_batch()
    fractions, flips = [], []
    for g in range(2):
        for n in range(3):
            for b in range(3):
                box, view, flip = batch.local_boxes[n, b], batch.global_boxes[g, b], bool(batch.global_flips[g, b])
                fraction = box_in_view(box.tolist(), view.tolist(), flip)[1]
                fractions.append(fraction)
                flips += [(g, flip)] if fraction >= 0.1 else []
    assert any(fraction == 0 for fraction in fractions)
    assert any(0 < fraction < 0.1 for fraction in fractions)
    assert any(0.1 <= fraction < 0.99 for fraction in fractions)
    assert any(fraction > 0.99 for fraction in fractions)
    assert {(0, True), (0, False)} <= set(flips)  # among those that count; released searches the first view only


@pytest.mark.parametrize(
    ("contrast", "changes"),
    [
        ("scfs", {"targets": "pooled"}),
        ("scfs-no-multicrop", {"targets": "pooled"}),
        ("roi-crop", {"local_views": False}),
    ],
)
def test_an_unknown_search_is_an_error(contrast, changes):
    model = make_model(contrast)
    model.plan = replace(model.plan, **changes)
    with pytest.raises(ValueError, match="No search is defined for targets"):
        model(make_batch(), TEACHER_TEMP)
