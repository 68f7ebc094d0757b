"""What must hold whatever the numbers: who gets a gradient, who moves when, and what a batch may be."""

import pytest
import torch
from toy_method import CONTRASTS, TEACHER_TEMP, WITH_MAPS, make_batch, make_model

EVERY_MODE = [(contrast, variant) for contrast in CONTRASTS for variant in ("paper", "released")]
ONE_MAP = ("scfs-no-multicrop", "released")  # of one image, a single searched map reaches the head
LOST = ("mlp.0.bias", "mlp.3.bias")  # of a search head: a batch norm takes them away again


def total(model, batch):
    return sum(model(batch, TEACHER_TEMP).losses.values())


def copies(tensors):
    return [tensor.detach().clone() for tensor in tensors]


# --- Gradients


@pytest.mark.parametrize(("contrast", "variant"), EVERY_MODE)
def test_teacher_never_gets_a_gradient(contrast, variant):
    model = make_model(contrast, variant)
    total(model, make_batch()).backward()
    model.update_teacher(0.9)
    total(model, make_batch(seed=2)).backward()
    for name, parameter in model.teacher.named_parameters():
        assert parameter.grad is None, name
        assert not parameter.requires_grad, name
    for name, buffer in model.named_buffers():
        assert not buffer.requires_grad, name


@pytest.mark.parametrize(
    ("contrast", "variant", "data_term"),
    [(*mode, data_term) for mode in EVERY_MODE for data_term in (True, False) if data_term or mode[0] in WITH_MAPS],
)
def test_every_student_parameter_gets_a_gradient(contrast, variant, data_term):
    model = make_model(contrast, variant, data_term=data_term)
    total(model, make_batch()).backward()
    for name, parameter in model.student.named_parameters():
        assert parameter.requires_grad, name
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        if not ("search_heads" in name and name.endswith(LOST)):
            assert parameter.grad.abs().max() > 1e-8, name


@pytest.mark.parametrize("contrast", ["scfs", "scfs-no-multicrop", "roi-crop"])
@pytest.mark.parametrize("variant", ["paper", "released"])
def test_no_gradient_goes_through_the_search(contrast, variant):
    """With the way through the student's heads cut, nothing of the layers' losses reaches the backbone."""
    model = make_model(contrast, variant, data_term=False)
    for head in model.student.search_heads:
        head.register_forward_pre_hook(lambda _, inputs: tuple(x.detach() for x in inputs))
    total(model, make_batch()).backward()
    assert all(parameter.grad is None for parameter in model.student.backbone.parameters())
    assert all(parameter.grad is not None for parameter in model.student.search_heads.parameters())


def test_diagnostics_of_every_head_have_no_gradient():
    for contrast, variant in EVERY_MODE:
        losses, diagnostics, _ = make_model(contrast, variant)(make_batch(), TEACHER_TEMP)
        expected = {f"{kind}/{term}" for kind in ("entropy", "used", "spread") for term in losses}
        assert diagnostics.keys() == {"feature_spread", "pixel_spread", "agreement", *expected}
        for name, value in diagnostics.items():
            assert value.shape == ()
            assert not value.requires_grad
            assert value > 0 or name == "agreement"
            if name.startswith("entropy"):
                assert value <= 1


# --- Batches


@pytest.mark.parametrize("num_local_views", [2, 5])
@pytest.mark.parametrize(("contrast", "variant"), [mode for mode in EVERY_MODE if mode != ONE_MAP])
def test_one_image_per_process(contrast, variant, num_local_views):
    model = make_model(contrast, variant)
    loss = total(model, make_batch(num_images=1, num_local_views=num_local_views))
    loss.backward()
    assert loss.isfinite()
    assert all(parameter.grad.isfinite().all() for parameter in model.student.parameters())


def test_one_image_is_too_few_where_one_map_is_searched():
    """The one exception: no multi-crop, and only the first global view searched."""
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        total(make_model(*ONE_MAP), make_batch(num_images=1))
    assert total(make_model(*ONE_MAP), make_batch(num_images=2)).isfinite()


def test_losses_do_not_depend_on_the_order_of_the_images():
    batch = make_batch()
    turned = type(batch)(*(part.flip(1) for part in batch))
    for contrast, variant in EVERY_MODE:
        model = make_model(contrast, variant)
        torch.testing.assert_close(total(model, batch), total(model, turned), rtol=1e-10, atol=0)


# --- Modes of training


@pytest.mark.parametrize("again", [False, True])
def test_only_the_teachers_batch_norms_train(again):
    model = make_model(dropout=0.5)
    if again:
        model.eval()
        assert not any(module.training for module in model.modules())
        model.train()
    norms = (torch.nn.BatchNorm1d, torch.nn.BatchNorm2d)
    for name, module in model.teacher.named_modules():
        assert module.training == isinstance(module, norms), name
    assert all(module.training for module in model.student.modules())


def test_the_teachers_synchronised_batch_norms_train_too():
    model = torch.nn.SyncBatchNorm.convert_sync_batchnorm(make_model()).train()
    norms = [module for module in model.teacher.modules() if isinstance(module, torch.nn.SyncBatchNorm)]
    assert len(norms) == 3 + 3 * 5  # one per stage, five per search head
    assert all(norm.training for norm in norms)


def test_dropout_acts_in_the_student_only():
    model, views = make_model(dropout=0.5), make_batch().global_views
    assert torch.equal(model.teacher(views).pooled, model.teacher(views).pooled)
    assert not torch.equal(model.student(views).pooled, model.student(views).pooled)


def test_teacher_normalises_by_its_batch():
    """Its running statistics move but are not used."""
    model, batch = make_model(), make_batch()
    before, buffers = total(model, batch), copies(model.teacher.buffers())
    assert any(not torch.equal(*pair) for pair in zip(buffers, copies(make_model().teacher.buffers()), strict=True))
    torch.testing.assert_close(total(model, batch), before, rtol=0, atol=0)


# --- The teacher's and the centers' moves


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9, 0.996, 1.0])
def test_update_teacher_moves_parameters_and_no_buffer(momentum):
    model = make_model()
    total(model, make_batch()).backward()  # running statistics of the two now differ
    teacher, student = copies(model.teacher.parameters()), copies(model.student.parameters())
    buffers, student_state = copies(model.buffers()), copies(model.student.state_dict().values())
    model.update_teacher(momentum)
    for new, t, s in zip(model.teacher.parameters(), teacher, student, strict=True):
        torch.testing.assert_close(new.detach(), momentum * t + (1 - momentum) * s, rtol=1e-12, atol=1e-15)
        if momentum in (0.0, 1.0):
            assert torch.equal(new, t if momentum else s)
    assert all(torch.equal(*pair) for pair in zip(buffers, model.buffers(), strict=True))
    assert all(torch.equal(*pair) for pair in zip(student_state, model.student.state_dict().values(), strict=True))


@pytest.mark.parametrize(("contrast", "variant"), EVERY_MODE)
def test_centers_wait_for_the_commit(contrast, variant):
    model, batch = make_model(contrast, variant), make_batch()
    centers = list(model.centers())
    assert len(centers) == 1 + (len(model.layers) if contrast in WITH_MAPS else 0)
    before = copies(center.value for center in centers)
    first = total(model, batch)
    assert torch.equal(total(model, batch), first)
    assert all(torch.equal(center.value, value) for center, value in zip(centers, before, strict=True))
    for center in centers:
        center.commit()
    assert not any(torch.allclose(center.value, value) for center, value in zip(centers, before, strict=True))
    assert not torch.allclose(total(model, batch), first)


# --- Checkpoints


@pytest.mark.parametrize(("contrast", "variant"), EVERY_MODE)
def test_state_dict_holds_centers_and_nothing_pending(contrast, variant):
    model = make_model(contrast, variant)
    names = list(model.state_dict())
    assert "center.value" in names
    expected = [f"search_centers.{i}.value" for i in range(len(model.layers))] if contrast in WITH_MAPS else []
    assert [name for name in names if name.startswith("search_centers")] == expected
    assert not any("pending" in name for name in names)


@pytest.mark.parametrize(("contrast", "variant"), EVERY_MODE)
def test_state_dict_round_trip(contrast, variant):
    model, other, batch = make_model(contrast, variant), make_model(contrast, variant, seed=9), make_batch()
    total(model, batch)
    for center in model.centers():
        center.commit()
    assert not torch.equal(total(other, batch), total(model, batch))
    other.load_state_dict(model.state_dict())
    losses, other_losses = (m(batch, TEACHER_TEMP).losses for m in (model, other))
    assert losses.keys() == other_losses.keys()
    assert all(torch.equal(loss, other_losses[name]) for name, loss in losses.items())
