import math
from typing import Any, NamedTuple

import torch

from scfs.config import Config
from scfs.recipe import check
from scfs.training.precision import has_native_bfloat16

# Differs from the paper: the paper's settings are for ImageNet; `auto` adapts to the number of images and steps.
LONG_RUN_EPOCHS = 100  # from this length on, the paper's warm-ups fit
MIN_SAVE_STEPS = 20  # between checkpoints, so that writing them takes little of the time
INIT_LR_SCALE = 0.3  # of a backbone with initial weights: measured, docs/adapt.md
MIN_BLURRED_SIZE = 128  # from this size of views on, the paper's blur leaves enough; measured only at 64 pixels


class Choice(NamedTuple):
    """A setting that was `auto`, or a time, the value chosen for it, and why."""

    setting: str
    value: Any
    reason: str  # empty if there is nothing to tell
    given: str = "auto"


def resolve(
    config: Config, num_images: int, device: torch.device, *, epochs: Choice | None = None
) -> tuple[Config, list[Choice]]:
    """Replace every `auto` that depends on the data, the length of the run or the device.

    epochs: how many fit into the time that is given instead of them; without it, the settings are those of a run whose
    length is not known yet.
    """
    timed = [epochs or _unknown_epochs(config)] if config.optim.seconds else []
    config = _replaced(config, timed)
    steps_per_epoch = num_images // config.optim.batch_size
    steps = steps_per_epoch * config.optim.num_epochs
    choices = [
        choice
        for choice in (
            *_method_choices(config, num_images, steps),
            *_view_choices(config),
            _warmup_choice(config),
            _backbone_lr_choice(config),
            _precision_choice(device),
            *_run_choices(config, steps_per_epoch),
        )
        if _get(config, choice.setting) == "auto"
    ]
    return _replaced(config, choices), [*timed, *choices]


def _unknown_epochs(config: Config) -> Choice:
    """A number of epochs that suits every warm-up."""
    warmup = config.optim.warmup_epochs
    epochs = LONG_RUN_EPOCHS if warmup == "auto" else max(LONG_RUN_EPOCHS, math.ceil(warmup))
    return Choice("optim.epochs", epochs, "not measured")


def _method_choices(config: Config, num_images: int, steps: int) -> list[Choice]:
    long_run = config.optim.num_epochs >= LONG_RUN_EPOCHS
    out_dim = min(65536, max(256, 2 ** (num_images // 8).bit_length() // 2))
    horizon = min(250, max(10, steps // 10))
    temp = 0.07 if long_run else config.method.teacher_temp_start
    per_output = (
        f"about {num_images // out_dim} of {num_images} images per output"
        if num_images >= out_dim
        else f"the smallest that auto chooses, for {num_images} images"
    )
    averaged = (
        f"the teacher averages over {horizon} of the {steps} steps"
        if steps >= horizon
        else f"the teacher averages over all {steps} steps"
    )
    out_dim_choice = Choice("method.out_dim", out_dim, f"{per_output}; the paper has 65536")
    return [
        *([out_dim_choice] if config.method.objective == "dino" else []),  # other objectives have no such outputs
        Choice(
            "method.momentum",
            round(1 - 1 / horizon, 4),
            f"{averaged}; the paper's over 250",
        ),
        Choice(
            "method.teacher_temp",
            temp,
            "as in the paper"
            if long_run
            else f"under {LONG_RUN_EPOCHS} epochs a warmer teacher drifts towards uniform",
        ),
        Choice(
            "method.teacher_temp_warmup_epochs",
            50 if long_run else 0,
            "as in the paper" if long_run else f"no warm-up under {LONG_RUN_EPOCHS} epochs",
        ),
    ]


def _view_choices(config: Config) -> list[Choice]:
    released = config.method.variant == "released"
    reason = f"as in the {config.method.variant} variant"
    side = config.views.global_size
    small = side < MIN_BLURRED_SIZE
    return [
        Choice("views.global_scale", (0.25, 1.0) if released else (0.14, 1.0), reason),
        Choice("views.local_scale", (0.05, 0.25) if released else (0.05, 0.14), reason),
        Choice(
            "views.blur",
            0.0 if small else 1.0,
            f"radii of up to 2 pixels leave too little of views of {side}" if small else "as in the paper",
        ),
    ]


def _warmup_choice(config: Config) -> Choice:
    epochs = config.optim.num_epochs
    if epochs >= LONG_RUN_EPOCHS:
        return Choice("optim.warmup_epochs", 10, "as in the paper")
    return Choice("optim.warmup_epochs", round(epochs / 10, 2), f"a tenth of {epochs} epochs; the paper has 10 of 200")


def _backbone_lr_choice(config: Config) -> Choice:
    if config.backbone.init:
        reason = "with initial weights, so that random heads change them less"
        return Choice("optim.backbone_lr_scale", INIT_LR_SCALE, reason)
    return Choice("optim.backbone_lr_scale", 1.0, "")


def _run_choices(config: Config, steps_per_epoch: int) -> list[Choice]:
    epochs = math.ceil(MIN_SAVE_STEPS / steps_per_epoch) if steps_per_epoch else 1
    often = "once per epoch" if epochs == 1 else f"every {epochs} epochs of {steps_per_epoch} steps"
    return [
        Choice("run.checkpoint_every_steps", epochs * steps_per_epoch, often),
        Choice("run.knn_every_epochs", math.ceil(config.optim.num_epochs / 10), "a tenth of the run"),
        Choice("run.keep_every_epochs", math.ceil(config.optim.num_epochs / 4), "a quarter of the run"),
    ]


def _precision_choice(device: torch.device) -> Choice:
    if has_native_bfloat16(device):
        return Choice("optim.precision", "bfloat16", f"native on this {device.type}, and faster")
    return Choice("optim.precision", "float32", f"bfloat16 is not known to be native on this {device.type}")


def _get(config: Config, setting: str) -> Any:
    section, name = setting.split(".")
    return getattr(getattr(config, section), name)


def _replaced(config: Config, choices: list[Choice]) -> Config:
    values = config.model_dump()
    for choice in choices:
        section, name = choice.setting.split(".")
        values[section][name] = choice.value
    return check(Config, values)
