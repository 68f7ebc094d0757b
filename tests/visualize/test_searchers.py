import torch

from scfs.backbones import load_backbone
from scfs.visualize.searchers import build_searcher, short_names


def sides(target, loaded, **sizes):
    searcher = build_searcher(loaded, target, layers=loaded.backbone.layers, device=torch.device("cpu"), **sizes)
    return searcher.side, searcher.query_side


def test_names_tell_runs_apart():
    assert short_names(["runs/scfs", "runs/dino/"]) == ["scfs", "dino"]
    assert short_names(["a/backbone.pth", "b/backbone.pth"]) == ["a/backbone.pth", "b/backbone.pth"]
    assert short_names(["random:resnet18"]) == ["random:resnet18"]
    assert short_names(["runs/x", "runs/x", "runs/y"]) == ["x (1)", "x (2)", "y"]


def test_sides_follow_training(trained):
    run = load_backbone(str(trained))  # global views of 32, local ones of 16
    assert sides(str(trained), run) == (48, 16)
    assert sides(str(trained), run, size=70, query_size=24) == (70, 24)
    fixed = load_backbone("random:hiera_tiny_224")
    assert sides("random:hiera_tiny_224", fixed) == (224, 224)
    foreign = load_backbone("random:vit_tiny_patch16_224")
    assert sides("random:vit_tiny_patch16_224", foreign) == (288, 96)
    control = load_backbone("random:resnet10_half")  # compared with a run, at the run's sizes
    for others in ([str(trained)], ["random:resnet10_half", str(trained)]):
        assert sides("random:resnet10_half", control, others=others) == (48, 16)
