import subprocess
import sys

import pytest
import torch

import scfs
from scfs.backbones import Backbone
from scfs.errors import UserError
from scfs.exporting import export
from scfs.pretrained import load_backbone


@torch.no_grad()
def test_forward_pools_and_maps_are_named(tmp_path):
    out = tmp_path / "b.safetensors"
    export("random:resnet10_half", out)
    network = load_backbone(str(out))
    assert not network.training
    images = torch.randn(2, 3, 64, 64)
    pooled, maps = network.backbone(images)
    assert torch.equal(network(images), pooled)
    named = network.maps(images)
    assert list(named) == network.layers == Backbone("resnet10_half").layers
    for found, expected in zip(named.values(), maps, strict=True):
        assert torch.equal(found, expected)
    assert (network.num_features, network.size) == (256, None)


def test_the_package_offers_it():
    assert scfs.load_backbone is load_backbone


def test_a_path_is_as_good_as_a_string(tmp_path):
    with pytest.raises(UserError, match="Nothing at"):
        load_backbone(tmp_path / "nowhere")


def test_importing_the_package_is_cheap():
    words = [sys.executable, "-c", "import sys, scfs; sys.exit('torch' in sys.modules)"]
    assert subprocess.run(words).returncode == 0
