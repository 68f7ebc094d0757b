import os
import shutil
from collections.abc import Iterator
from typing import cast

import torch

from scfs.backbones import REDUCED, Backbone, load_weights
from scfs.config import Config, MethodSettings
from scfs.distributed import gather_images, mean_over_processes, parallel
from scfs.errors import UserError
from scfs.method.encoder import Encoder
from scfs.method.heads import DataHead, EmbeddingHead, LayerHead, PooledSearchHead, ProjectionHead, SearchHead
from scfs.method.modes import ObjectiveName
from scfs.method.objectives import CodingRate, InfoNCE, Objective, SelfDistillation, VICReg
from scfs.method.scfs import SCFS
from scfs.pretraining.step import PretrainLearner, schedule_at
from scfs.training.batch_norm import sync_batch_norms
from scfs.training.convolution import use_gemm_weight_gradients
from scfs.training.gradient_checkpointing import checkpoint_blocks
from scfs.training.optim import OwnRate, build_optimizer
from scfs.training.precision import Precision


def build_backbone(config: Config) -> Backbone:
    """The backbone of a run, randomly initialised."""
    layers = None if config.backbone.layers == "auto" else config.backbone.layers
    return Backbone(config.backbone.name, layers, drop_path=config.backbone.drop_path)


def build_method(config: Config) -> SCFS:
    """Build student, teacher and centers from resolved settings, randomly initialised, with the heads the mode uses."""
    method, backbone = config.method, build_backbone(config)
    backbone.check_sizes(config.views.global_size, *[config.views.local_size][: config.num_local_views])
    if not method.data_term:
        _freeze_beyond_maps(backbone, config.views.global_size)
    head = build_head(method, backbone.num_features) if method.data_term else None
    search_heads = [
        build_search_head(method, channels) for channels in (backbone.channels if method.plan.uses_maps else [])
    ]
    return SCFS(
        Encoder(backbone, head, search_heads),
        layers=backbone.layers,
        contrast=method.contrast,
        variant=method.variant,
        multilayer=method.multilayer,
        center_momentum=method.center_momentum,
        objective=build_objective(method, method.objective),
        search_objective=build_objective(method, method.layer_objective),
        search_weight=method.search_weight,
        targets=method.targets,
        mean_over_processes=mean_over_processes,
    )


def build_head(method: MethodSettings, num_features: int) -> DataHead:
    """The head of the data term: DINO's, or an embedding head for objectives without a softmax."""
    if method.objective != "dino":
        return EmbeddingHead(num_features, method.bottleneck_dim, hidden_dim=method.hidden_dim)
    return ProjectionHead(
        num_features,
        int(method.out_dim),
        hidden_dim=method.hidden_dim,
        bottleneck_dim=method.bottleneck_dim,
        batch_norm=method.batch_norm,
    )


def build_search_head(method: MethodSettings, channels: int) -> LayerHead:
    """The head of one search layer."""
    if method.search_head == "pooled":
        return PooledSearchHead(channels, method.search_out_dim, hidden_dim=method.search_hidden_dim)
    return SearchHead(
        channels,
        method.search_out_dim,
        hidden_dim=method.search_hidden_dim,
        bottleneck_dim=method.search_bottleneck_dim,
    )


def build_objective(method: MethodSettings, name: ObjectiveName) -> Objective:
    """The loss between head outputs and their targets."""
    if name == "info-nce":
        return InfoNCE(method.info_nce_temp, gather=gather_images)
    if name == "coding-rate":
        return CodingRate(gather=gather_images)
    if name == "vicreg":
        return VICReg(gather=gather_images)
    return SelfDistillation(method.student_temp, method.centering, gather=gather_images)


def _freeze_beyond_maps(backbone: Backbone, size: int) -> None:
    """Freeze the norms after the last map, which nothing trains without the data term; refuse any other layer there."""
    parameters = dict(backbone.named_parameters())
    for name in backbone.unused_by_maps(size):
        if parameters[name].ndim > 1:
            raise UserError(
                f"method.data_term = false would never train '{name}' of {backbone.name}, which comes after the last "
                f"search layer; add '{backbone.deepest_layer}' to backbone.layers, or keep the data term."
            )
        parameters[name].requires_grad_(False)


def start_from(method: SCFS, weights: str) -> str:
    """Load the backbone of a run or a weights file into student and teacher; returns the load report."""
    report = load_weights(cast(Backbone, method.student.backbone), weights)
    method.teacher.backbone.load_state_dict(method.student.backbone.state_dict())
    return str(report)


def hints(config: Config, method: SCFS, device: torch.device) -> Iterator[str]:
    """Advice on an optimizer that does not suit the backbone, and on a backbone that does not suit the device."""
    name, is_vit = config.backbone.name, hasattr(cast(Backbone, method.student.backbone).net, "num_prefix_tokens")
    if is_vit and config.optim.name == "sgd":
        yield (
            f"Hint: {name} is a ViT, which SGD rarely trains well; AdamW is usual, with the settings of the recipe "
            "imagenet100_vit_s (optim.name = adamw)."
        )
    if name in REDUCED and device.type == "cuda":
        yield (
            f"Hint: {name} is a small network for CPUs; on a GPU, try --backbone.name resnet50 --views.global_size 224 "
            "--method.hidden_dim 2048 --method.search_hidden_dim 2048."
        )


def build_learner(config: Config, method: SCFS, device: torch.device, *, num_images: int) -> PretrainLearner:
    """The method on its device with its optimizer, ready for one process or many."""
    optim, steps_per_epoch = config.optim, num_images // config.optim.batch_size
    if device.type == "cuda":
        torch.backends.cudnn.benchmark = True  # views have two sizes only
    method = sync_batch_norms(method.to(device), device).train()
    if config.run.channels_last:
        method.to(memory_format=torch.channels_last)
    if config.run.gradient_checkpointing:
        _checkpoint_gradients(cast(Backbone, method.student.backbone))
    if config.run.compile:
        _require_compiler(device)
        for encoder in (method.student, method.teacher):
            encoder.backbone.compile()
    elif device.type == "cpu":
        use_gemm_weight_gradients(method.student)
    return PretrainLearner(
        method,
        parallel(method, device),
        build_optimizer(
            optim.name, method.student, own_rate=OwnRate(method.student.backbone, float(optim.backbone_lr_scale))
        ),
        Precision(optim.precision, device),
        lambda step: schedule_at(config, step, steps_per_epoch),
        clip=optim.clip,
        clip_norm=optim.clip_norm,
        seed=config.seed,
        channels_last=config.run.channels_last,
    )


def _checkpoint_gradients(backbone: Backbone) -> None:
    if not checkpoint_blocks(backbone):
        raise UserError(f"run.gradient_checkpointing finds no blocks in {backbone.name}; leave it off.")


def _require_compiler(device: torch.device) -> None:
    language, variable, usual = ("C++", "CXX", ["g++"]) if device.type == "cpu" else ("C", "CC", ["gcc", "clang"])
    compilers = [os.environ[variable]] if variable in os.environ else usual
    if not any(map(shutil.which, compilers)):
        raise UserError(
            f"run.compile needs a {language} compiler, and {' or '.join(compilers)} was not found; install one or "
            "leave it off."
        )
