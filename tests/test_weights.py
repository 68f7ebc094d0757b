"""Weights of other projects, under the names in their files."""

import argparse
from collections import OrderedDict

import numpy as np
import pytest
import safetensors.torch
import timm
import torch
import torchvision
from timm.layers.pos_embed import resample_abs_pos_embed
from timm.models.convnext import ConvNeXt
from timm.models.vision_transformer import VisionTransformer
from torch import nn
from torchvision.models.convnext import CNBlockConfig
from torchvision.models.convnext import ConvNeXt as TorchvisionConvNeXt
from torchvision.models.vision_transformer import VisionTransformer as TorchvisionViT

from scfs.backbones import Backbone, load_weights
from scfs.errors import UserError
from scfs.weights.match import Mismatch, match_tensors
from scfs.weights.read import Stored, read_weights

NAME = "resnet10_half"


def randomised(net, seed=0):
    """Every parameter and statistic different, so that none can be mistaken for another."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for tensor in net.state_dict().values():
            if tensor.is_floating_point():
                tensor.copy_(torch.rand(tensor.shape, generator=generator) * 0.2 + 0.02)
    return net.eval()


def small_vit(**options):
    return VisionTransformer(
        **{"img_size": 32, "embed_dim": 16, "depth": 2, "num_heads": 2, "num_classes": 0} | options
    )


def with_norm(net):
    net.norm_pre = nn.LayerNorm(16)
    return net


def small_torchvision_vit():
    net = TorchvisionViT(image_size=32, patch_size=16, num_layers=2, num_heads=2, hidden_dim=16, mlp_dim=64)
    net = randomised(net)
    net.heads = nn.Identity()
    return net


def small_convnext():
    return ConvNeXt(depths=(1, 2, 1, 1), dims=(8, 16, 24, 32), num_classes=0)


def small_torchvision_convnext():
    net = randomised(TorchvisionConvNeXt([CNBlockConfig(8, 16, 1), CNBlockConfig(16, 24, 2), *last_stages()]))
    net.classifier[2] = nn.Identity()
    return net


def last_stages():
    return [CNBlockConfig(24, 32, 1), CNBlockConfig(32, None, 1)]


@torch.no_grad()
@pytest.mark.parametrize("prefix", ["", "module."])
@pytest.mark.parametrize(
    ("theirs", "ours"), [(small_torchvision_vit, small_vit), (small_torchvision_convnext, small_convnext)]
)
def test_torchvision_networks_give_the_same_features(theirs, ours, prefix, tmp_path):
    theirs, ours = theirs(), ours().eval()
    tensors = {prefix + name: tensor for name, tensor in theirs.state_dict().items()}
    taken, report = match_tensors(Stored(tmp_path, tensors), ours)
    ours.load_state_dict(taken)
    assert report.format == "torchvision"
    assert report.num_tensors == len(ours.state_dict())
    images = torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(ours(images), theirs(images))


def test_names_in_torchvisions_first_vits(tmp_path):
    theirs = small_torchvision_vit().state_dict()
    old = {n.replace(".mlp.0.", ".mlp.linear_1.").replace(".mlp.3.", ".mlp.linear_2."): t for n, t in theirs.items()}
    assert set(old) != set(theirs)
    torch.save(old, tmp_path / "vit.pth")
    taken, _ = match_tensors(read_weights(str(tmp_path / "vit.pth")), small_vit())
    assert torch.equal(taken["blocks.1.mlp.fc2.bias"], theirs["encoder.layers.encoder_layer_1.mlp.3.bias"])


def named(prefix, seed):
    net = randomised(Backbone(NAME).net, seed)
    return {prefix + name: tensor.clone() for name, tensor in net.state_dict().items()}


def extra(*names):
    return {name: torch.ones(3) for name in names}


def dino(prefix=""):
    return {
        "student": named("module.backbone.", 1) | extra("module.head.mlp.0.weight", "module.head.last_layer.weight_g"),
        "teacher": named(f"{prefix}backbone.", 2) | extra(f"{prefix}head.mlp.0.weight"),
        "epoch": 3,
        "args": argparse.Namespace(arch="resnet50", lr=0.1, scale=(0.4, 1.0)),
        "optimizer": {"state": {}, "param_groups": [{"lr": np.float64(0.1), "betas": (0.9, 0.99)}]},
    }


def released_scfs():
    heads = [f"module.layer{i}_head.conv1.weight" for i in (2, 3, 4)]
    return {
        "student": named("module.backbone.model.", 1) | extra(*heads, "module.head.mlp.0.bias"),
        "teacher": named("module.backbone.model.", 2) | extra(*heads, "module.head.mlp.0.bias"),
        "dino_loss_l2_fn": extra("center"),
    }


def moco():
    both = named("module.encoder_k.", 1) | named("module.encoder_q.", 2)
    return {"arch": "resnet50", "state_dict": both | extra("module.queue", "module.encoder_q.fc.0.weight")}


def moco_v3():
    both = named("module.momentum_encoder.", 1) | named("module.base_encoder.", 2)
    return {"epoch": 1, "state_dict": OrderedDict(both | extra("module.base_encoder.fc.0.weight"))}


@pytest.mark.parametrize(
    ("content", "format", "unused"),
    [
        (lambda: named("", 2) | extra("fc.weight", "fc.bias"), "timm or torchvision", {"fc": 2}),
        (lambda: named("module.", 2) | extra("module.fc.weight"), "timm or torchvision", {"fc": 1}),
        (lambda: {"model": named("", 2)}, "timm or torchvision", {}),
        (lambda: {"model_state_dict": named("net.", 2)}, "timm or torchvision (behind 'net.')", {}),
        (lambda: {"model": {"state_dict": named("", 2)}}, "timm or torchvision", {}),
        (dino, "DINO (teacher)", {"head": 1}),
        (lambda: dino("module."), "DINO (teacher)", {"head": 1}),
        (
            released_scfs,
            "released SCFS (teacher)",
            {"layer2_head": 1, "layer3_head": 1, "layer4_head": 1, "head": 1},
        ),
        (moco, "MoCo (encoder_q)", {"encoder_k": 60, "queue": 1, "encoder_q.fc": 1}),
        (moco_v3, "MoCo v3 (base_encoder)", {"momentum_encoder": 60, "base_encoder.fc": 1}),
    ],
)
@pytest.mark.parametrize("zipped", [True, False])
def test_every_naming_is_recognised(content, format, unused, zipped, tmp_path):
    torch.save(content(), tmp_path / "w.pth", _use_new_zipfile_serialization=zipped)
    backbone = Backbone(NAME)
    report = load_weights(backbone, str(tmp_path / "w.pth"))
    assert (report.format, report.unused) == (format, unused)
    expected = randomised(Backbone(NAME).net, 2).state_dict()
    assert report.num_tensors == sum("num_batches" not in name for name in expected)
    for name, tensor in backbone.net.state_dict().items():
        assert torch.equal(tensor, expected[name]), name


def test_the_student_is_loaded_on_request(tmp_path):
    torch.save(dino(), tmp_path / "w.pth")
    backbone = Backbone(NAME)
    assert load_weights(backbone, str(tmp_path / "w.pth"), network="student").format == "DINO (student)"
    assert torch.equal(backbone.net.conv1.weight, named("", 1)["conv1.weight"])
    with pytest.raises(UserError, match="no network 'ema'"):
        read_weights(str(tmp_path / "w.pth"), "ema")


@pytest.mark.parametrize("network", ["teacher", "student"])
@pytest.mark.parametrize(
    ("student", "teacher", "evaluated"),
    [
        ("student.backbone.", "teacher.backbone.", None),
        ("student.module.backbone.", "teacher.backbone.", None),
        ("module.student.", "module.teacher.", None),
        ("model.student_backbone.", "model.teacher_backbone.", None),
        ("student_backbone.", "backbone.", None),
        ("query_backbone.", "backbone.", None),
        ("backbone.", "backbone_momentum.", None),
        ("module.encoder_q.", "module.encoder_k.", "student"),
        ("base_encoder.", "momentum_encoder.", "student"),
        ("backbone.", "momentum_backbone.", "student"),
        ("online_encoder.net.", "target_encoder.net.", "student"),
        ("online_network.", "target_network.", "student"),
        ("online_net.0.", "target_net.0.", "student"),
    ],
)
@pytest.mark.parametrize("name", ["w.ckpt", "w.safetensors"])
def test_two_networks_in_one_dictionary(student, teacher, evaluated, network, name, tmp_path):
    heads = extra("student_projection_head.0.weight", "projection_head.0.weight", "projection_head_momentum.0.weight")
    tensors = named(teacher, 2) | heads | named(student, 1)
    if name == "w.ckpt":
        torch.save({"epoch": 3, "state_dict": tensors}, tmp_path / name)
    else:
        safetensors.torch.save_file(tensors, tmp_path / name)
    backbone = Backbone(NAME)
    report = load_weights(backbone, str(tmp_path / name), network=network)
    seed = {"student": 1, "teacher": 2}[evaluated or network]
    assert torch.equal(backbone.net.conv1.weight, named("", seed)["conv1.weight"])
    assert torch.equal(backbone.net.layer4[0].bn2.running_var, named("", seed)["layer4.0.bn2.running_var"])
    assert report.unused[(student if seed == 2 else teacher).removeprefix("module.").partition(".")[0]] >= 60


def test_an_incomplete_teacher_is_not_replaced_by_the_student(tmp_path):
    tensors = named("student.", 1) | named("teacher.", 2)
    del tensors["teacher.layer3.0.conv1.weight"]
    torch.save(tensors, tmp_path / "w.pth")
    with pytest.raises(UserError, match=r"'teacher.layer3.0.conv1.weight' is missing"):
        load_weights(Backbone(NAME), str(tmp_path / "w.pth"))
    load_weights(Backbone(NAME), str(tmp_path / "w.pth"), network="student")


def test_files_without_batch_counters(tmp_path):
    old = {name: tensor for name, tensor in named("", 2).items() if "num_batches" not in name}
    safetensors.torch.save_file(old, tmp_path / "old.safetensors")
    backbone = Backbone(NAME)
    load_weights(backbone, str(tmp_path / "old.safetensors"))
    assert torch.equal(backbone.net.layer4[0].bn2.running_var, old["layer4.0.bn2.running_var"])


def test_the_report_is_short():
    _, report = match_tensors(
        Stored("w.pth", named("", 2) | extra("fc.weight", "fc.bias", "head.0")), Backbone(NAME).net
    )
    assert str(report) == "Loaded 60 tensors from timm or torchvision weights.\nNot loaded: fc (2), head (1)."


def test_position_embeddings_of_another_grid(tmp_path):
    theirs, ours = randomised(small_vit(img_size=64)), small_vit()
    taken, report = match_tensors(Stored(tmp_path, theirs.state_dict()), ours)
    expected = resample_abs_pos_embed(theirs.pos_embed.detach(), [2, 2], [4, 4], num_prefix_tokens=1)
    torch.testing.assert_close(taken["pos_embed"], expected)
    assert "resampled from 4 x 4 to 2 x 2" in str(report)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (lambda: small_vit(img_size=(32, 48)), "'pos_embed' is 1 x 7 x 16, not 1 x 5 x 16"),
        (lambda: small_vit(embed_dim=32), "'cls_token' is 1 x 1 x 32, not 1 x 1 x 16"),
        (lambda: small_vit(patch_size=8), "'patch_embed.proj.weight' is 16 x 3 x 8 x 8, not 16 x 3 x 16 x 16"),
        (lambda: small_vit(depth=1), "'blocks.1.norm1.weight' is missing"),
        (lambda: small_vit(depth=3), "'blocks.2.norm1.weight' is in the file and not in the network"),
        (lambda: small_vit(init_values=0.1), "'blocks.0.ls1.gamma' is in the file"),
        (lambda: with_norm(small_vit()), "'norm_pre.weight' is in the file"),
        (lambda: small_vit(reg_tokens=1, no_embed_class=False), "'reg_token' is in the file"),
        (small_torchvision_convnext, "'cls_token' is missing"),
    ],
)
def test_other_transformers_are_distinguished(content, reason, tmp_path):
    state = content().state_dict()
    if "reg_token" in state:
        state["pos_embed"] = state["pos_embed"][:, 1:]  # of the right size: only the token differs
    with pytest.raises(Mismatch, match=reason):
        match_tensors(Stored(tmp_path, state), small_vit())


def on_meta(name):
    with torch.device("meta"):
        return timm.create_model(name, num_classes=0)


@pytest.mark.parametrize(
    ("file", "network", "reason"),
    [
        ("resnet18", "resnet34", "'layer1.2.conv1.weight' is missing"),
        ("resnet34", "resnet18", "'layer1.2.conv1.weight' is in the file and not in the network"),
        ("resnet50", "resnet101", "'layer3.6.conv1.weight' is missing"),
        ("resnet101", "resnet50", "'layer3.6.conv1.weight' is in the file and not in the network"),
        ("resnet18", "resnet50", "'layer1.0.conv1.weight' is 64 x 64 x 3 x 3, not 64 x 64 x 1 x 1"),
        ("convnext_tiny", "convnext_small", "'stages.2.blocks.9.gamma' is missing"),
    ],
)
def test_other_depths_are_distinguished(file, network, reason, tmp_path):
    with pytest.raises(Mismatch, match=reason):
        match_tensors(Stored(tmp_path, on_meta(file).state_dict()), on_meta(network))


def test_moco_v3s_small_vit_has_other_heads(tmp_path):
    tensors = {f"module.base_encoder.{n}": t for n, t in on_meta("vit_small_patch16_224").state_dict().items()}
    with pytest.raises(Mismatch, match="12 attention heads"):
        match_tensors(Stored(tmp_path, tensors), on_meta("vit_small_patch16_224"))


def test_a_mismatch_is_one_sentence(tmp_path):
    torch.save(torchvision.models.resnet18().state_dict(), tmp_path / "w.pth")
    with pytest.raises(UserError) as refusal:
        load_weights(Backbone("resnet34"), str(tmp_path / "w.pth"))
    assert str(refusal.value) == (
        f"{tmp_path / 'w.pth'} does not fit backbone 'resnet34': 'layer1.2.conv1.weight' is missing; "
        "it looks like resnet18: give the name of its backbone, or another file."
    )
