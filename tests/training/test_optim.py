import pytest
import torch
from torch import nn

from scfs.training.gradients import Gradients, check_finite
from scfs.training.optim import OwnRate, build_optimizer, parameter_groups, set_rates


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, 2))


def test_biases_and_norms_do_not_decay():
    net = network()
    decaying, others = parameter_groups(net)
    assert [id(p) for p in decaying["params"]] == [id(net[0].weight), id(net[3].weight)]
    assert {id(p) for p in others["params"]} == {id(p) for p in (net[0].bias, net[1].weight, net[1].bias, net[3].bias)}


@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_rates_reach_the_right_groups(name):
    net = network()
    before = [p.clone() for p in net.parameters()]
    optimizer = build_optimizer(name, net)
    set_rates(optimizer, lr=0.1, weight_decay=0.5)
    for p in net.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()  # no gradient: only the decay moves anything
    for p, old in zip(net.parameters(), before, strict=True):
        torch.testing.assert_close(p.data, old * (0.95 if p.ndim > 1 else 1.0))


@pytest.mark.parametrize("name", ["sgd", "adamw", "muon", "lars"])
def test_a_part_may_have_a_rate_of_its_own(name):
    """It moves as the same part of a network trained at that rate, and the rest as without it."""
    slow, fast, both = network(), network(), network()
    optimizers = [build_optimizer(name, slow), build_optimizer(name, fast)]
    optimizers.append(build_optimizer(name, both, own_rate=OwnRate(both[0], 0.25)))
    for net, optimizer, lr in zip((slow, fast, both), optimizers, (0.025, 0.1, 0.1), strict=True):
        torch.manual_seed(0)
        for _ in range(3):
            set_rates(optimizer, lr=lr, weight_decay=0.01)
            for p in net.parameters():
                p.grad = torch.randn_like(p)
            optimizer.step()
    for p, expected in zip(both.parameters(), [*slow[0].parameters(), *[*fast.parameters()][2:]], strict=True):
        torch.testing.assert_close(p, expected)
    assert not torch.allclose(slow[3].weight, fast[3].weight)


@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_a_frozen_layer_may_be_trained_later(name):
    """A frozen layer has no gradient at first; later it is updated as with torch's plain optimizers."""
    nets = [network(), network()]
    plain = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}[name]
    options = {"momentum": 0.9} if name == "sgd" else {}
    groups = [{**group, "lr": 0.1, "weight_decay": 0.0} for group in parameter_groups(nets[1])]
    optimizers = [build_optimizer(name, nets[0]), plain(groups, **options, fused=False)]
    set_rates(optimizers[0], lr=0.1, weight_decay=0.0)
    for step in range(4):
        for net, optimizer in zip(nets, optimizers, strict=True):
            torch.manual_seed(step)
            for p in net.parameters():
                p.grad = torch.randn_like(p)
            if step < 2:
                net[3].weight.grad = None
            optimizer.step()
    for ours, theirs in zip(*(net.parameters() for net in nets), strict=True):
        torch.testing.assert_close(ours, theirs)


def clip(net, how, max_norm):
    found = Gradients(net.named_parameters())
    checked = check_finite({"loss": torch.tensor(1.0)}, found, step=0, remedy="none")
    found.clip(how, max_norm, checked.norms)


def gradients(net, scales):
    for p, scale in zip(net.parameters(), scales, strict=True):
        p.grad = torch.full_like(p, scale / p.numel() ** 0.5)  # norm = scale


def test_clip_each_tensor():
    net = network()
    gradients(net, [1.0, 2.0, 3.0, 4.0, 30.0, 0.0])
    clip(net, "per-tensor", 3.0)
    norms = [p.grad.norm().item() for p in net.parameters()]
    assert norms == pytest.approx([1.0, 2.0, 3.0, 3.0, 3.0, 0.0], rel=1e-5)


def test_clip_the_total_norm():
    net = network()
    gradients(net, [3.0, 4.0, 0.0, 0.0, 0.0, 0.0])
    clip(net, "total", 1.0)
    norms = [p.grad.norm().item() for p in net.parameters()]
    assert norms == pytest.approx([0.6, 0.8, 0.0, 0.0, 0.0, 0.0], rel=1e-4)


def test_no_clipping_and_missing_gradients():
    net = network()
    gradients(net, [100.0] * 6)
    clip(net, "off", 3.0)
    assert net[0].weight.grad.norm().item() == pytest.approx(100.0)
    net[0].weight.grad = None
    clip(net, "per-tensor", 3.0)
    assert net[0].weight.grad is None


def test_muon_moves_weights_by_orthogonal_steps_and_the_rest_by_adam():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8, 6))
    before = [p.detach().clone() for p in net.parameters()]
    optimizer = build_optimizer("muon", net)
    set_rates(optimizer, lr=0.1, weight_decay=0.5)
    for p in net.parameters():
        p.grad = torch.randn_like(p)
    optimizer.step()
    for p, old in zip(net.parameters(), before, strict=True):
        if p.ndim > 1:  # decayed, then moved along a matrix whose singular values are about 1, times the rate
            moved = (p.detach() - 0.95 * old).flatten(1)
            values = torch.linalg.svdvals(moved) / 0.1 / max(1.0, moved.shape[0] / moved.shape[1]) ** 0.5
            assert values.min() > 0.6
            assert values.max() < 1.4
        else:  # not decayed; one size for all gradients, of a fifth of the rate (Nesterov: nearly twice that at first)
            moved = (p.detach() - old).abs()
            assert 0 < moved.max() < 2 * 0.1 * 0.2
            torch.testing.assert_close(moved, moved.max().expand_as(moved), rtol=1e-3, atol=0)


@pytest.mark.parametrize("how", ["total", "off", "per-tensor"])
def test_clipping_is_torchs(how):
    torch.manual_seed(0)
    ours, theirs = network(), network()
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        a.grad = torch.randn_like(a)
        b.grad = a.grad.clone()
    clip(ours, how, 0.7)
    if how == "total":
        nn.utils.clip_grad_norm_(theirs.parameters(), 0.7)
    elif how == "per-tensor":
        for p in theirs.parameters():
            nn.utils.clip_grad_norm_([p], 0.7)
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad)


@pytest.mark.parametrize("decay", [0.0, 0.01])
def test_lars_adapts_the_rates_of_weights_only(decay):
    """Against a plain loop: DINO's rule, with timm's denominator where weights decay."""
    torch.manual_seed(0)
    net = network()
    expected = [p.detach().double() for p in net.parameters()]
    momenta = [torch.zeros_like(p) for p in expected]
    optimizer = build_optimizer("lars", net)
    set_rates(optimizer, lr=0.3, weight_decay=decay)
    for _ in range(3):
        for i, p in enumerate(net.parameters()):
            p.grad = torch.randn_like(p)
            step, old = p.grad.double(), expected[i]
            if p.ndim > 1:
                ratio = 0.001 * old.norm() / (step.norm() + decay * old.norm())
                step = (step + decay * old) * ratio
            momenta[i] = 0.9 * momenta[i] + step
            expected[i] = old - 0.3 * momenta[i]
        optimizer.step()
    for p, value in zip(net.parameters(), expected, strict=True):
        torch.testing.assert_close(p.detach().double(), value, rtol=1e-5, atol=1e-6)
