"""A loss or a gradient that is not finite is refused before anything is updated."""

import copy
import math

import pytest
import torch

from scfs.data.loader import LoadedViews
from scfs.errors import UserError
from scfs.pretraining.build import build_learner, build_method
from scfs.pretraining.step import PretrainLearner
from scfs.runs import checkpoint
from scfs.training.gradients import NotFiniteError
from scfs.view_batch import ViewBatch

CPU = torch.device("cpu")
WITHOUT_BATCH_NORMS = {"method__contrast": "dino", "backbone__name": "vit_tiny_patch16_224"}


def make_learner(config, precision="float32"):
    torch.manual_seed(0)
    config = config.model_copy(update={"optim": config.optim.model_copy(update={"precision": precision})})
    return build_learner(config, build_method(config), CPU, num_images=12)


def make_batch(images=4, seed=0):
    torch.manual_seed(seed)

    def views(count, size):
        return torch.randint(256, (count, images, size, size, 3), dtype=torch.uint8).movedim(-1, 2)

    boxes = torch.tensor([0.0, 0.0, 1.0, 1.0]).expand(2, images, 4)
    flips = torch.zeros(2, images, dtype=torch.bool)
    return ViewBatch(views(2, 32), views(2, 16), boxes, boxes, flips, flips)


def poison(learner, value):
    """Make one gradient infinite or NaN in one row; the loss stays finite."""
    weight = learner.method.student.backbone.net.layer3[0].conv1.weight
    return weight.register_hook(lambda grad: grad.index_fill(0, torch.tensor([1]), value))


def changed(learner, before):
    """Names of parameters, centers and optimizer states that differ, batch-norm statistics apart."""
    now = learner.state_dict()
    names = [
        name
        for name, value in now["method"].items()
        if "running_" not in name and "num_batches" not in name and not torch.equal(value, before["method"][name])
    ]
    for index, state in now["optimizer"]["state"].items():
        names += [
            f"{index} {name}"
            for name, v in state.items()
            if not torch.equal(v, before["optimizer"]["state"][index][name])
        ]
    return names


@pytest.mark.parametrize("clip", ["per-tensor", "total", "off"])
@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_a_gradient_that_is_not_finite_changes_nothing(tiny, clip, value):
    learner = make_learner(tiny(optim__clip=clip))
    learner.step([LoadedViews(make_batch(), [])], 3)
    before = copy.deepcopy(learner.state_dict())
    poison(learner, value)
    message = (
        r"The gradients of backbone.net.layer3.0.conv1.weight became (inf|nan) at step 4, at a loss of .*lower opt"
    )
    with pytest.raises(UserError, match=message):
        learner.step([LoadedViews(make_batch(), [])], 4)
    assert changed(learner, before) == []


def test_float16_skips_steps_that_overflow(tiny):
    learner = make_learner(tiny(), "float16")
    learner.precision.scaler = torch.amp.GradScaler("cpu", init_scale=16.0)  # low enough for these gradients
    learner.step([LoadedViews(make_batch(), [])], 3)
    before = copy.deepcopy(learner.state_dict())
    hook = poison(learner, math.inf)
    numbers = learner.step([LoadedViews(make_batch(), [])], 4)
    assert math.isfinite(numbers["loss"])
    assert changed(learner, before) == []
    assert learner.precision.scaler.get_scale() == 8.0
    assert not any(center.pending.any() for center in learner.method.centers())
    hook.remove()
    learner.step([LoadedViews(make_batch(), [])], 4)
    assert {"center.value", "teacher.backbone.net.conv1.weight"} < {*changed(learner, before)}
    resumed = make_learner(tiny(), "float16")
    resumed.load_state_dict(learner.state_dict())
    assert resumed.precision.num_skipped == learner.precision.num_skipped == 1


def test_float16_does_not_skip_steps_forever(tiny):
    learner = make_learner(tiny(), "float16")
    poison(learner, math.nan)
    learner.step([LoadedViews(make_batch(), [])], 0)
    learner.precision.scaler.update(2.0**-8)  # after many such steps
    with pytest.raises(NotFiniteError, match="overflow float16 in every step"):
        learner.step([LoadedViews(make_batch(), [])], 1)


@pytest.mark.parametrize("at", [4, 5])  # the last of six steps too
def test_the_last_checkpoint_stays_intact(scfs, tiny_recipe, tmp_path, monkeypatch, at):
    words = ("pretrain", tiny_recipe, "--run.folder", tmp_path / "run", "--run.checkpoint_every_steps", 2)
    real = PretrainLearner.step

    def step(learner, batch, number):
        if number == at:
            poison(learner, math.inf)
        return real(learner, batch, number)

    with monkeypatch.context() as patch:
        patch.setattr(PretrainLearner, "step", step)
        code, _, err = scfs(*words)
    assert code == 2
    assert f"The gradients of backbone.net.layer3.0.conv1.weight became inf at step {at}" in err
    assert err.count("\n") == 1
    assert checkpoint.load(tmp_path / "run" / "last.pt")["step"] == 4
    assert scfs("pretrain", tmp_path / "run", "--resume")[0] == 0


@pytest.mark.parametrize("micro_batches", [2, 4])
def test_spread_does_not_depend_on_micro_batches(tiny, micro_batches):
    """For a network without batch norms, whose features do not depend on micro-batches either."""
    batch = make_batch()
    whole, split_up = (make_learner(tiny(**WITHOUT_BATCH_NORMS)) for _ in range(2))
    images = len(batch.global_boxes[0]) // micro_batches
    split = [ViewBatch(*(each[:, first : first + images] for each in batch)) for first in range(0, 4, images)]
    expected = whole.step([LoadedViews(batch, [])], 0)
    found = split_up.step([LoadedViews(each, []) for each in split], 0)
    assert expected["feature_spread"] > 0.01
    for name in ("feature_spread", "spread/view", "entropy/view", "loss"):
        assert found[name] == pytest.approx(expected[name], rel=1e-4), name


def test_a_step_does_not_depend_on_micro_batches(tiny):
    """Gradients of micro-batches are averaged; not in Adam, where their scale would hardly matter."""
    config = tiny(**WITHOUT_BATCH_NORMS, optim__name="sgd", optim__clip="off", optim__warmup_epochs=0)
    batch = make_batch()
    whole, split_up = (make_learner(config) for _ in range(2))
    before = [parameter.clone() for parameter in whole.method.student.parameters()]
    whole.step([LoadedViews(batch, [])], 0)
    halves = [ViewBatch(*(each[:, half] for each in batch)) for half in (slice(0, 2), slice(2, 4))]
    split_up.step([LoadedViews(half, []) for half in halves], 0)
    moves = [
        torch.cat([(now - old).flatten() for now, old in zip(each.method.student.parameters(), before, strict=True)])
        for each in (whole, split_up)
    ]
    assert (moves[0] - moves[1]).norm() < 1e-3 * moves[0].norm()


def test_the_term_that_is_not_finite_is_named(tiny):
    learner = make_learner(tiny())
    with torch.no_grad():
        [*learner.method.student.search_heads[1].parameters()][-1].fill_(math.nan)
    with pytest.raises(NotFiniteError, match=r"The loss \(its term '.*layer3'\) became nan at step 0"):
        learner.step([LoadedViews(make_batch(), [])], 0)


@pytest.mark.parametrize("name", ["running_mean", "running_var"])
def test_statistics_that_are_not_finite_are_never_saved(scfs, tiny_recipe, tmp_path, monkeypatch, name):
    """NaN in the teacher's batch-norm statistics changes no loss, since it normalises by the batch."""
    words = ("pretrain", tiny_recipe, "--run.folder", tmp_path / "run", "--run.checkpoint_every_steps", 2)
    real = PretrainLearner.step

    def step(learner, batch, number):
        numbers = real(learner, batch, number)
        if number == 3:
            getattr(learner.method.teacher.backbone.net.bn1, name)[0] = math.nan
        return numbers

    monkeypatch.setattr(PretrainLearner, "step", step)
    code, _, err = scfs(*words)
    assert code == 2
    assert f"teacher.backbone.net.bn1.{name} is not finite everywhere" in err
    assert checkpoint.load(tmp_path / "run" / "last.pt")["step"] == 2


def test_skipped_steps_are_counted(tiny):
    learner = make_learner(tiny(), "float16")
    learner.precision.scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
    assert learner.step([LoadedViews(make_batch(), [])], 0)["skipped_steps"] == 0
    poison(learner, math.inf)
    assert [learner.step([LoadedViews(make_batch(), [])], i)["skipped_steps"] for i in (1, 2)] == [1, 2]
    assert "skipped_steps" not in make_learner(tiny()).step([LoadedViews(make_batch(), [])], 0)
