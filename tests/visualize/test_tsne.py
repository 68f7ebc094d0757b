import torch

from scfs.visualize.projection import project
from scfs.visualize.tsne import PERPLEXITY, _affinities, tsne


def clusters(count=3, each=30, dim=16):
    generator = torch.Generator().manual_seed(0)
    centres = 3 * torch.randn(count, dim, generator=generator)
    points = centres.repeat_interleave(each, 0) + 0.4 * torch.randn(count * each, dim, generator=generator)
    return points, torch.arange(count).repeat_interleave(each)


def test_clusters_stay_together():
    points, labels = clusters()
    found = tsne(points)
    nearest = torch.cdist(found, found).fill_diagonal_(torch.inf).topk(5, largest=False).indices
    assert found.isfinite().all()
    assert (labels[nearest] == labels.unsqueeze(1)).float().mean() > 0.99


def test_it_is_the_same_every_time_and_leaves_the_random_state_alone():
    points, _ = clusters()
    before = torch.get_rng_state()
    assert torch.equal(tsne(points), tsne(points))
    assert torch.equal(torch.get_rng_state(), before)


def test_affinities_have_the_perplexity():
    """Each row before it is made symmetric; a loop over rows and exponents finds the same entropy."""
    points, _ = clusters(count=4, each=40)
    units = torch.nn.functional.normalize(points.double(), dim=-1)
    affinities = _affinities(torch.cdist(units, units).square())
    assert torch.allclose(affinities, affinities.T)
    assert abs(float(affinities.sum()) - 1) < 1e-6
    rows = affinities / affinities.sum(dim=1, keepdim=True)
    perplexities = (-(rows * rows.log()).sum(dim=1)).exp()
    assert 0.7 * PERPLEXITY < float(perplexities.median()) < 1.4 * PERPLEXITY


def test_few_or_equal_points():
    few = torch.eye(4)
    assert torch.equal(tsne(few), project(few).points)
    assert tsne(torch.ones(20, 4)).isfinite().all()
