import json

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from safetensors.torch import load_file
from test_export import saved
from test_weights import randomised

from scfs.backbones import Backbone, Loaded
from scfs.data.views import centre_view, normalize
from scfs.errors import UserError
from scfs.exporting import export
from scfs.exporting.for_transformers import write_transformers
from scfs.preprocessing import Preprocessing

FILES = ["config.json", "model.safetensors", "preprocessor_config.json"]


def written(folder, name, layers, size):
    """Export a checkpoint; the network, and what was exported."""
    net = saved(folder / "last.pt", name, layers, size)
    return net, export(str(folder / "last.pt"), folder / "out", to="transformers")


@torch.no_grad()
@pytest.mark.parametrize(
    ("name", "layers", "size"),
    [
        ("resnet10_half", ["layer2", "layer3"], 64),
        ("resnet18", ["layer4"], 64),
        ("test_vit", ["blocks.5"], 160),  # the size of its grid
        ("test_vit", ["blocks.5"], 96),
    ],
)
def test_it_computes_the_same(name, layers, size, tmp_path):
    net, exported = written(tmp_path, name, layers, size)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == FILES
    images = torch.randn(3, 3, size, size)
    final = net.forward_features(images)
    pooled = net.forward_head(final, pre_logits=True)
    theirs = eval(exported.how, {"transformers": transformers, "images": images})
    torch.testing.assert_close(theirs / pooled.abs().max(), pooled / pooled.abs().max(), rtol=0, atol=1e-5)
    options = {"add_pooling_layer": False} if name == "test_vit" else {}
    model = transformers.AutoModel.from_pretrained(tmp_path / "out", local_files_only=True, **options)
    last = model(pixel_values=images).last_hidden_state
    torch.testing.assert_close(last / final.abs().max(), final / final.abs().max(), rtol=0, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("name", ["test_vit", "resnet26"])  # a ResNet of bottlenecks
def test_typical_weights_agree_without_scaling(name, tmp_path):
    """As initialized, but with position embeddings, biases and statistics that matter."""
    backbone = Backbone(name).eval()
    for key, tensor in backbone.net.state_dict().items():
        if tensor.ndim == 1 or key == "pos_embed":
            tensor.add_(torch.rand(tensor.shape, generator=torch.Generator().manual_seed(0)) * 0.1)
    exported = write_transformers(Loaded(backbone, 64), tmp_path / "out")
    images = torch.randn(2, 3, 64, 64)
    pooled, maps = backbone(images)
    theirs = eval(exported.how, {"transformers": transformers, "images": images})
    torch.testing.assert_close(theirs, pooled, rtol=1e-5, atol=1e-5)
    options = {"add_pooling_layer": False} if name == "test_vit" else {}
    last = transformers.AutoModel.from_pretrained(tmp_path / "out", **options)(pixel_values=images).last_hidden_state
    theirs = last[:, 1:].transpose(1, 2).unflatten(2, (4, 4)) if name == "test_vit" else last
    torch.testing.assert_close(theirs, maps[-1], rtol=1e-5, atol=1e-5)


def test_the_names_are_those_of_its_files(tmp_path):
    """As save_pretrained writes them, so that versions before 5 can also read them."""
    written(tmp_path, "test_vit", ["blocks.5"], 64)
    model = transformers.AutoModel.from_pretrained(tmp_path / "out", add_pooling_layer=False)
    model.save_pretrained(tmp_path / "again")
    ours, theirs = (load_file(tmp_path / name / "model.safetensors") for name in ("out", "again"))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize(
    ("name", "layers", "size"), [("resnet10_half", ["layer4"], 64), ("test_vit", ["blocks.5"], 96)]
)
def test_images_are_prepared_as_we_do(name, layers, size, tmp_path):
    """Where the margins of the crop are even, or round in the same direction."""
    written(tmp_path, name, layers, size)
    photo = Image.fromarray(np.random.default_rng(0).integers(0, 256, (150, 200, 3), dtype=np.uint8))
    ours = normalize(centre_view(photo, size))
    for options, tolerance in (({"backend": "pil"}, 1e-5), ({}, 1.01 / 255 / 0.224)):
        processor = transformers.AutoImageProcessor.from_pretrained(tmp_path / "out", local_files_only=True, **options)
        [theirs] = processor(photo, return_tensors="pt")["pixel_values"]
        torch.testing.assert_close(theirs, ours, rtol=0, atol=tolerance)


def test_other_preprocessing_is_recorded(tmp_path):
    preprocessing = Preprocessing(400, (0.5, 0.4, 0.3), (0.2, 0.3, 0.4), "bilinear")
    write_transformers(Loaded(Backbone("resnet10_half").eval(), 400, None, preprocessing), tmp_path / "out")
    content = json.loads((tmp_path / "out" / "preprocessor_config.json").read_text())
    assert (content["image_mean"], content["image_std"]) == ([0.5, 0.4, 0.3], [0.2, 0.3, 0.4])
    assert (content["size"], content["crop_size"]) == ({"shortest_edge": 457}, {"height": 400, "width": 400})
    assert content["resample"] == Image.Resampling.BILINEAR


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("test_convnext", "it is not a plain ResNet or ViT"),
        ("test_resnet", "it is not a plain ResNet or ViT"),
        ("test_vit2", "it is not a plain ResNet or ViT"),  # registers and layer scales
        ("resnext50_32x4d", r"its 'encoder.*' is \[64, 64, 1, 1\], ours \[128, 64, 1, 1\]"),
        ("resnetblur18", "the last map differs by"),  # a filter without weights
    ],
)
def test_what_has_no_exact_counterpart_is_refused(name, reason, tmp_path):
    with pytest.raises(UserError, match=f"computes the same as '{name}': {reason}.*; export to a"):
        export(f"random:{name}", tmp_path / "out", to="transformers")
    assert list(tmp_path.iterdir()) == []


def test_a_vit_that_pools_otherwise_is_refused(tmp_path):
    backbone = Backbone("test_vit").eval()
    randomised(backbone.net)
    backbone.net.global_pool = "avg"
    with pytest.raises(UserError, match="the pooled feature differs by"):
        write_transformers(Loaded(backbone, 64), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_printed_but_the_sentences(scfs, tmp_path):
    verbosity = transformers.utils.logging.get_verbosity()
    code, out, err = scfs("export", "random:resnet10_half", tmp_path / "out", "--to", "transformers")
    assert (code, err) == (0, "")
    assert "72 tensors under transformers's names" in out
    assert transformers.utils.logging.get_verbosity() == verbosity
    assert transformers.utils.logging.is_progress_bar_enabled()
    assert scfs("export", "random:resnet10_half", tmp_path / "out", "--to", "transformers")[0] == 2
