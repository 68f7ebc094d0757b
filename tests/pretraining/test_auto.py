import pytest
import torch

from scfs.config import Config
from scfs.pretraining.auto import resolve
from scfs.recipe import check

AUTO = {
    "method": {"out_dim": "auto", "momentum": "auto", "teacher_temp": "auto", "teacher_temp_warmup_epochs": "auto"},
    "optim": {"warmup_epochs": "auto"},
}


def resolved(num_images, epochs, batch_size=256, **flags):
    flags = {"optim.epochs": epochs, "optim.batch_size": batch_size, "optim.final_lr": 0.0, **flags}
    return resolve(check(Config, AUTO, flags), num_images, torch.device("cpu"))


def test_data_of_the_papers_size_gets_the_papers_settings():
    config, _ = resolved(1_281_167, 200)
    method = config.method
    assert (method.out_dim, method.momentum, method.teacher_temp) == (65536, 0.996, 0.07)
    assert (method.teacher_temp_warmup_epochs, config.optim.warmup_epochs) == (50, 10)
    assert (config.views.global_scale, config.views.local_scale) == ((0.14, 1.0), (0.05, 0.14))
    assert config.run.checkpoint_every_steps == 1_281_167 // 256


@pytest.mark.parametrize(("images", "steps"), [(256 * 20, 20), (256 * 19, 38), (256, 20), (256 * 3, 21)])
def test_short_epochs_are_not_saved_one_by_one(images, steps):
    config, choices = resolved(images, 10)
    assert config.run.checkpoint_every_steps == steps
    [choice] = [choice for choice in choices if choice.setting == "run.checkpoint_every_steps"]
    assert choice.reason.startswith("once per epoch" if images == 256 * 20 else "every ")


@pytest.mark.parametrize(("epochs", "scored", "kept"), [(100, 10, 25), (2317, 232, 580), (1, 1, 1)])
def test_scores_and_kept_checkpoints_are_a_fraction_of_the_run(epochs, scored, kept):
    config, _ = resolved(5000, epochs, **{"run.knn_every_epochs": "auto", "run.keep_every_epochs": "auto"})
    assert (config.run.knn_every_epochs, config.run.keep_every_epochs) == (scored, kept)


def test_small_data_gets_a_small_head_and_a_fast_teacher():
    config, choices = resolved(5000, 10, batch_size=50)
    assert config.method.out_dim == 512
    assert config.method.momentum == pytest.approx(0.99)  # 100 of 1,000 steps
    assert (config.method.teacher_temp, config.method.teacher_temp_warmup_epochs) == (0.04, 0)
    assert config.optim.warmup_epochs == 1.0
    assert {c.setting for c in choices} >= {"method.out_dim", "method.momentum", "optim.warmup_epochs"}
    assert all(c.reason for c in choices)


@pytest.mark.parametrize(("init", "scale"), [("", 1.0), ("resnet18.pth", 0.3)])
def test_initial_weights_get_a_lower_rate_than_random_heads(init, scale):
    config, _ = resolved(5000, 10, **{"optim.backbone_lr_scale": "auto", "backbone.init": init})
    assert config.optim.backbone_lr_scale == scale
    assert resolved(5000, 10, **{"backbone.init": init})[0].optim.backbone_lr_scale == 1.0  # not auto


@pytest.mark.parametrize(("images", "out_dim"), [(1, 256), (4096, 512), (9469, 1024), (126_689, 8192), (10**7, 65536)])
def test_out_dim_grows_with_the_number_of_images(images, out_dim):
    assert resolved(images, 10, batch_size=1)[0].method.out_dim == out_dim


def test_reasons_make_sense_for_tiny_data():
    _, choices = resolved(64, 2, batch_size=32)
    reasons = {choice.setting: choice.reason for choice in choices}
    assert reasons["method.momentum"].startswith("the teacher averages over all 4 steps;")
    assert reasons["method.out_dim"].startswith("the smallest that auto chooses, for 64 images;")
    reasons = {choice.setting: choice.reason for choice in resolved(5000, 10, batch_size=50)[1]}
    assert reasons["method.momentum"].startswith("the teacher averages over 100 of the 1000 steps;")
    assert reasons["method.out_dim"].startswith("about 9 of 5000 images per output;")


def test_the_released_variant_has_its_own_crops():
    config, _ = resolved(5000, 10, **{"method.variant": "released"})
    assert (config.views.global_scale, config.views.local_scale) == ((0.25, 1.0), (0.05, 0.25))


@pytest.mark.parametrize(("size", "blur", "reason"), [(64, 0, "views of 64"), (128, 1, "paper"), (224, 1, "paper")])
def test_small_views_are_not_blurred(size, blur, reason):
    config, choices = resolved(5000, 10, **{"views.blur": "auto", "views.global_size": size})
    assert config.views.blur == config.crops["blur"] == blur
    assert reason in {choice.setting: choice.reason for choice in choices}["views.blur"]


def test_explicit_settings_are_unchanged():
    config, choices = resolved(5000, 10, **{"method.out_dim": 77, "views.global_scale": (0.3, 0.4)})
    assert (config.method.out_dim, config.views.global_scale) == (77, (0.3, 0.4))
    assert not {"method.out_dim", "views.global_scale"} & {c.setting for c in choices}


def test_out_dim_is_chosen_only_for_objective_dino():
    config, choices = resolved(5000, 10, **{"method.objective": "info-nce"})
    assert config.method.out_dim == "auto"
    assert "method.out_dim" not in [choice.setting for choice in choices]


@pytest.mark.parametrize(("has", "expected"), [({"avx512_bf16": True}, "bfloat16"), ({"amx_bf16": False}, "float32")])
def test_precision_follows_the_processor(monkeypatch, has, expected):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: has, raising=False)
    config, choices = resolved(5000, 10, **{"optim.precision": "auto"})
    assert config.optim.precision == expected
    assert [choice.value for choice in choices if choice.setting == "optim.precision"] == [expected]
    assert resolved(5000, 10)[0].optim.precision == "float32"  # the default is not auto
