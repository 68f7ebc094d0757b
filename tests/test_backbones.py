import pytest
import timm
import torch
import torch.nn.functional as F
from timm.layers import DropPath

from scfs.backbones import REDUCED, Backbone, default_layers, guess_name, load_backbone
from scfs.errors import UserError
from scfs.runs import checkpoint
from scfs.weights.read import Stored


@pytest.mark.parametrize(
    ("name", "layers", "channels", "strides"),
    [
        ("resnet18", ["layer2", "layer3", "layer4"], [128, 256, 512], [8, 16, 32]),
        ("resnet50", ["layer2", "layer3", "layer4"], [512, 1024, 2048], [8, 16, 32]),
        ("resnet10_half", ["layer2", "layer3", "layer4"], [64, 128, 256], [8, 16, 32]),
        ("vit_small_patch16_224", ["blocks.5", "blocks.8", "blocks.11"], [384, 384, 384], [16, 16, 16]),
    ],
)
def test_maps_and_pooled_feature(name, layers, channels, strides):
    backbone = Backbone(name).eval()
    assert (backbone.layers, backbone.channels) == (layers, channels)
    for size in (64, 96):  # global and local views pass through the same network
        with torch.no_grad():
            pooled, maps = backbone(torch.randn(2, 3, size, size))
        assert pooled.shape == (2, backbone.num_features)
        assert [tuple(m.shape) for m in maps] == [
            (2, c, size // s, size // s) for c, s in zip(channels, strides, strict=True)
        ]


@pytest.mark.parametrize(
    ("name", "layers", "channels", "strides"),
    [
        ("resnet101", ["layer2", "layer3", "layer4"], [512, 1024, 2048], [8, 16, 32]),
        ("vit_base_patch16_224", ["blocks.5", "blocks.8", "blocks.11"], [768, 768, 768], [16, 16, 16]),
        ("convnext_tiny", ["stages.1", "stages.2", "stages.3"], [192, 384, 768], [8, 16, 32]),
        (
            "efficientvit_b0",
            ["stages.1", "stages.2", "stages.3"],
            [32, 64, 128],
            [8, 16, 32],
        ),  # the pooled feature is wider
        ("xcit_nano_12_p16_224", ["blocks.5", "blocks.8", "blocks.11"], [128, 128, 128], [16, 16, 16]),
        ("swin_tiny_patch4_window7_224", ["layers.1", "layers.2", "layers.3"], [192, 384, 768], [8, 16, 32]),
        ("swinv2_tiny_window8_256", ["layers.1", "layers.2", "layers.3"], [192, 384, 768], [8, 16, 32]),
        ("swinv2_cr_tiny_224", ["stages.1", "stages.2", "stages.3"], [192, 384, 768], [8, 16, 32]),
    ],
)
def test_shapes_of_larger_networks(name, layers, channels, strides):
    with torch.device("meta"):
        backbone = Backbone(name).eval()
        assert (backbone.layers, backbone.channels) == (layers, channels)
        for size in (224, 96, 64, 32):
            pooled, maps = backbone(torch.empty(2, 3, size, size))
            assert pooled.shape == (2, backbone.num_features)
            assert [tuple(m.shape[1:]) for m in maps] == [
                (c, size // s, size // s) for c, s in zip(channels, strides, strict=True)
            ]


@torch.no_grad()
def test_convnext_pools_its_last_map():
    backbone = Backbone("convnext_atto").eval()
    images = torch.randn(2, 3, 64, 64)
    pooled, maps = backbone(images)
    torch.testing.assert_close(pooled, backbone.net(images))
    torch.testing.assert_close(maps[-1], backbone.net.forward_features(images))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("resnet5000", "timm has no model 'resnet5000'; the nearest are resnet50"),
        ("resnet10half", "the nearest are resnet10_half"),
        ("vit_smal_patch16_224", "vit_small_patch16_224"),
        ("../weights", "see timm.list_models"),
        ("resnet18.no_such_tag", "no_such_tag"),
        ("densenet121", "does not return feature maps"),
    ],
)
def test_names_that_cannot_be_built(name, reason):
    with pytest.raises(UserError, match=reason):
        Backbone(name)


def test_sizes_that_a_network_cannot_take():
    Backbone("resnet10_half").check_sizes(96, 224)
    vit = Backbone("vit_tiny_patch16_224")
    vit.check_sizes(96)
    with pytest.raises(UserError, match=r"cannot take images of 100 x 100 \(.*divisible by patch size.*\); choose"):
        vit.check_sizes(32, 100)
    with torch.device("meta"):
        hiera = Backbone("hiera_tiny_224")
    hiera.check_sizes(224)
    with pytest.raises(
        UserError, match=r"64 x 64 \(it is built for 224 x 224\); choose .* takes any, such as a ResNet"
    ):
        hiera.check_sizes(64)


def test_swin_trains_on_views_of_several_sizes():
    backbone = Backbone("swin_tiny_patch4_window7_224", drop_path=0.0)
    global_views, local_views = (backbone(torch.randn(2, 3, size, size)) for size in (64, 32))
    for pooled, maps in (global_views, local_views):
        torch.testing.assert_close(pooled, maps[-1].mean(dim=(-2, -1)))
    sum(each.square().mean() for _, maps in (global_views, local_views) for each in maps).backward()
    assert all(parameter.grad is not None for parameter in backbone.parameters())
    assert not [module for module in backbone.modules() if isinstance(module, DropPath)]  # timm's default is 0.1


@torch.no_grad()
def test_swin_is_timms_at_its_own_size():
    backbone = Backbone("swin_tiny_patch4_window7_224").eval()
    net = timm.create_model("swin_tiny_patch4_window7_224", num_classes=0).eval()
    net.load_state_dict(backbone.net.state_dict())
    images = torch.randn(1, 3, 224, 224)
    torch.testing.assert_close(backbone(images)[0], net(images))


def test_resnet_pools_its_last_map():
    backbone = Backbone("resnet10_half").eval()
    pooled, maps = backbone(torch.randn(2, 3, 64, 64))
    torch.testing.assert_close(pooled, maps[-1].mean(dim=(-2, -1)))


@torch.no_grad()
def test_vit_maps_are_its_patch_tokens():
    """Plain forward hooks see the same: the last map after the final norm, the others before it."""
    backbone = Backbone("vit_small_patch16_224").eval()
    seen = {}
    for block in (5, 8):
        backbone.net.blocks[block].register_forward_hook(lambda _m, _i, out, block=block: seen.update({block: out}))
    backbone.net.norm.register_forward_hook(lambda _m, _i, out: seen.update(norm=out))
    pooled, maps = backbone(torch.randn(2, 3, 48, 64))
    torch.testing.assert_close(pooled, seen["norm"][:, 0])  # class token
    for found, tokens in zip(maps, (seen[5], seen[8], seen["norm"]), strict=True):
        assert found.shape == (2, 384, 3, 4)
        for row in range(3):
            for column in range(4):
                torch.testing.assert_close(found[:, :, row, column], tokens[:, 1 + row * 4 + column])


def test_any_subset_of_layers_gives_the_same_maps():
    torch.manual_seed(0)
    every = Backbone("resnet10_half", ["layer1", "layer2", "layer3", "layer4"]).eval()
    images = torch.randn(1, 3, 64, 64)
    pooled, maps = every(images)
    for layers in (["layer2"], ["layer1", "layer3"], []):
        some = Backbone("resnet10_half", layers).eval()
        some.load_state_dict(every.state_dict())
        some_pooled, some_maps = some(images)
        torch.testing.assert_close(some_pooled, pooled)
        for layer, found in zip(layers, some_maps, strict=True):
            torch.testing.assert_close(found, maps[every.layers.index(layer)])


def test_no_residual_block_starts_as_identity():
    for block in Backbone("resnet18").net.layer1:
        assert torch.all(block.bn2.weight == 1)


def test_drop_path_acts_in_training_only():
    backbone = Backbone("vit_small_patch16_224", drop_path=0.5)
    images = torch.randn(4, 3, 32, 32)
    assert not torch.equal(backbone.train()(images)[0], backbone(images)[0])
    assert torch.equal(backbone.eval()(images)[0], backbone(images)[0])


def test_default_layers_of_other_depths():
    blocks = [{"module": f"blocks.{i}", "reduction": 16} for i in range(24)]
    assert default_layers(blocks) == ["blocks.11", "blocks.17", "blocks.23"]
    with torch.device("meta"):
        assert Backbone("convnext_atto").layers == ["stages.1", "stages.2", "stages.3"]
        assert Backbone("efficientnet_b0").layers == ["blocks.2", "blocks.4", "blocks.6"]  # its stages


def test_parameters_unused_by_the_maps():
    with torch.device("meta"):
        assert Backbone("resnet18").unused_by_maps(64) == []
        assert Backbone("vit_tiny_patch16_224").unused_by_maps(64) == []
        assert Backbone("resnet18", ["layer3"]).unused_by_maps(64)[0] == "net.layer4.0.conv1.weight"
        assert Backbone("convnext_atto").unused_by_maps(64) == ["net.head.norm.weight", "net.head.norm.bias"]
        assert "net.conv_head.weight" in Backbone("efficientnet_b0").unused_by_maps(64)


def test_a_model_without_drop_path_is_refused():
    with pytest.raises(UserError, match="vgg11"):
        Backbone("vgg11", drop_path=0.1)


def test_transposed_images_give_transposed_maps():
    """Height and width are not mixed up."""
    backbone = Backbone("resnet10_half").eval()
    with torch.no_grad():
        wide = backbone(F.pad(torch.ones(1, 3, 64, 32), (0, 64)))[1][0]
    assert wide.shape[-2:] == (8, 12)


def saved_run(folder, name="resnet10_half"):
    """The backbones of a run folder: teacher with seed 1, student with seed 2."""
    networks = {}
    for network, seed in (("teacher", 1), ("student", 2)):
        torch.manual_seed(seed)
        networks[network] = Backbone(name, ["layer3", "layer4"])
        networks[network].net.bn1.num_batches_tracked += 7
    method = {f"{n}.backbone.{key}": value for n, net in networks.items() for key, value in net.state_dict().items()}
    settings = {"backbone": {"name": name, "layers": ["layer3", "layer4"]}, "views": {"global_size": 48}}
    folder.mkdir()
    checkpoint.save(folder / "last.pt", {"settings": settings, "method": method | {"teacher.head.w": torch.ones(2)}})
    return networks


@pytest.mark.parametrize("network", ["teacher", "student"])
@pytest.mark.parametrize("file", ["", "last.pt"])
def test_the_backbone_of_a_run(network, file, tmp_path):
    expected = saved_run(tmp_path / "run")[network].state_dict()
    loaded = load_backbone(str(tmp_path / "run" / file), network=network)
    assert (loaded.backbone.name, loaded.backbone.layers, loaded.size) == ("resnet10_half", ["layer3", "layer4"], 48)
    assert loaded.report.format == f"scfs ({network})"
    for key, value in loaded.backbone.state_dict().items():
        assert torch.equal(value, expected[key])


def test_the_name_must_be_the_runs(tmp_path):
    saved_run(tmp_path / "run")
    assert load_backbone(str(tmp_path / "run"), name="resnet10_half").size == 48
    with pytest.raises(UserError, match="holds backbone 'resnet10_half', not 'resnet18'"):
        load_backbone(str(tmp_path / "run"), name="resnet18")


@pytest.mark.parametrize("change", [{"settings": {}}, {"method": None}, {"scfs_checkpoint": 99}])
def test_checkpoints_of_another_version(change, tmp_path):
    saved_run(tmp_path / "run")
    path = tmp_path / "run" / "last.pt"
    torch.save(torch.load(path) | change, path)
    with pytest.raises(UserError, match="another version of scfs"):
        load_backbone(str(path))


@pytest.mark.parametrize("name", ["resnet34", "vit_small_patch8_224", "vit_base_patch16_224", "convnext_tiny"])
def test_the_architecture_of_a_file_is_guessed(name, tmp_path):
    with torch.device("meta"):
        tensors = timm.create_model(name).state_dict()
    assert guess_name(Stored(tmp_path, {f"backbone.{key}": value for key, value in tensors.items()})) == name


def test_a_file_of_another_project(tmp_path):
    theirs = timm.create_model("resnet18", num_classes=3).eval()
    torch.save(theirs.state_dict(), tmp_path / "w.pth")
    loaded = load_backbone(str(tmp_path / "w.pth"))
    assert (loaded.backbone.name, loaded.size, loaded.report.unused) == ("resnet18", None, {"fc": 2})
    images = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        expected = theirs.forward_head(theirs.forward_features(images), pre_logits=True)
        torch.testing.assert_close(loaded.backbone.eval()(images)[0], expected)


def test_a_file_of_an_unusual_network(tmp_path):
    torch.save(timm.create_model("convnext_atto", num_classes=0).state_dict(), tmp_path / "w.pth")
    with pytest.raises(UserError, match="give the name of the timm model"):
        load_backbone(str(tmp_path / "w.pth"))
    assert load_backbone(str(tmp_path / "w.pth"), name="convnext_atto").report.format == "timm"


def test_random_weights_depend_on_the_seed():
    first, again, other = (load_backbone("random:resnet10_half", seed=s).backbone.net.conv1.weight for s in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("name", [*REDUCED, "resnet18", "resnet34"])
def test_each_network_is_told_from_those_it_contains(name, tmp_path):
    torch.save(Backbone(name).net.state_dict(), tmp_path / "weights.pth")
    assert load_backbone(str(tmp_path / "weights.pth")).backbone.name == name
