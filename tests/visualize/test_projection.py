import numpy as np
import pytest
import torch

from scfs.visualize.projection import project


def covariance(rows):
    """(dim, dim), as loops."""
    dim = len(rows[0])
    means = [sum(row[i] for row in rows) / len(rows) for i in range(dim)]
    return [
        [sum((r[i] - means[i]) * (r[j] - means[j]) for r in rows) / len(rows) for j in range(dim)] for i in range(dim)
    ]


@pytest.mark.parametrize(("images", "dim"), [(60, 20), (15, 30), (5, 3)])
def test_projection_is_onto_the_largest_eigenvectors(images, dim):
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(images, dim, generator=generator) * torch.linspace(5, 0.1, dim) + 3
    points, explained = project(features)
    values, vectors = np.linalg.eigh(covariance(features.tolist()))
    for axis in range(2):
        vector = vectors[:, -1 - axis]
        vector = vector * np.sign(vector[np.abs(vector).argmax()])
        expected = (features.double() - features.double().mean(dim=0)).numpy() @ vector
        np.testing.assert_allclose(points[:, axis], expected, rtol=1e-4, atol=1e-3)
        assert explained[axis] == pytest.approx(values[-1 - axis] / values.sum(), rel=1e-4)


def test_the_projection_does_not_depend_on_the_random_state():
    features = torch.randn(50, 16)
    torch.manual_seed(1)
    first = project(features)
    torch.manual_seed(2)
    state = torch.get_rng_state()
    again = project(features)
    assert torch.equal(first.points, again.points)
    assert torch.equal(state, torch.get_rng_state())
    mirrored = project(-features)  # the sign follows the directions, not the points
    torch.testing.assert_close(mirrored.points, -first.points)


@pytest.mark.parametrize("features", [torch.ones(10, 4), torch.ones(1, 4), torch.arange(6.0).unsqueeze(1)])
def test_features_of_fewer_than_two_dimensions(features):
    points, explained = project(features)
    assert points.shape == (len(features), 2)
    assert points.isfinite().all()
    assert explained[1] == 0
    assert explained[0] == pytest.approx(float(len(features) == 6))
