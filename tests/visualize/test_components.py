import numpy as np
import torch
import torch.nn.functional as F

from scfs.visualize.components import component_colours


def stripes(seed, height=6, width=8, channels=12):
    """Maps of two images: left and right halves have features of their own, the same in both, and a little noise."""
    generator = torch.Generator().manual_seed(seed)
    left, right = F.normalize(torch.randn(2, channels, generator=torch.Generator().manual_seed(0)), dim=1)
    maps = torch.where(torch.arange(width) < width // 2, left[:, None, None], right[:, None, None])
    return maps.expand(2, channels, height, width) + 0.02 * torch.randn(2, channels, height, width, generator=generator)


def test_similar_features_have_similar_colours_in_every_group():
    first, second = component_colours([stripes(1), stripes(2, height=4)])
    assert first.shape == (2, 6, 8, 3)
    assert second.shape == (2, 4, 8, 3)
    red = [colours[..., 0] for colours in (first, second)]
    for side in (slice(0, 4), slice(4, 8)):
        values = np.concatenate([each[..., side].ravel() for each in red])
        assert np.ptp(values) < 0.25
    assert abs(red[0][..., :4].mean() - red[1][..., 4:].mean()) > 0.6
    assert min(each.min() for each in red) == 0
    assert max(each.max() for each in red) == 1


def test_components_equal_those_of_a_full_decomposition():
    maps = torch.randn(1, 5, 9, 9, generator=torch.Generator().manual_seed(3))
    points = F.normalize(maps, dim=1).movedim(1, -1).flatten(0, 2).double()
    centered = points - points.mean(dim=0)
    values = centered @ torch.linalg.svd(centered).Vh[:3].T  # up to the sign
    found = component_colours([maps])[0].reshape(-1, 3)
    for i in range(3):
        inside = (found[:, i] > 0) & (found[:, i] < 1)
        assert abs(np.corrcoef(values[:, i].numpy()[inside], found[inside, i])[0, 1]) > 0.999


def test_constant_maps_have_one_colour():
    [colours] = component_colours([torch.ones(1, 4, 3, 3)])
    assert np.isfinite(colours).all()
    assert len(np.unique(colours.reshape(-1, 3), axis=0)) == 1
