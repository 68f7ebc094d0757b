import pytest
import torch

from scfs.visualize.neighbours import choose_queries, nearest_images, nearest_others


def cosine(a, b):
    product = sum(x * y for x, y in zip(a, b, strict=True))
    return product / (sum(x * x for x in a) * sum(y * y for y in b)) ** 0.5


def test_neighbours_equal_loops():
    features = torch.randn(40, 5, generator=torch.Generator().manual_seed(0))
    rows, k = [3, 0, 39], 6
    found = nearest_others(features, rows, k)
    values = features.tolist()
    for query, indices, cosines in zip(rows, found.indices.tolist(), found.cosines.tolist(), strict=True):
        ranked = sorted(((cosine(values[query], values[i]), i) for i in range(40) if i != query), reverse=True)[:k]
        assert indices == [i for _, i in ranked]
        assert cosines == pytest.approx([value for value, _ in ranked], abs=1e-5)


def test_queries_that_are_not_among_the_images():
    features = torch.eye(4)
    found = nearest_images(torch.tensor([[0.0, 2.0, 1.0, 0.0]]), features, 2)
    assert found.indices.tolist() == [[1, 2]]
    assert found.cosines.tolist()[0] == pytest.approx([2 / 5**0.5, 1 / 5**0.5])


def test_equal_images_are_neighbours_of_each_other():
    """With more equal images than requested neighbours, the query may not be among the first."""
    features = torch.ones(8, 3)
    for query in range(8):
        found = nearest_others(features, [query], 3)
        assert found.indices.shape == (1, 3)
        assert query not in found.indices.tolist()[0]
        assert len(set(found.indices.tolist()[0])) == 3


def test_fewer_images_than_neighbours():
    assert nearest_others(torch.eye(3), [0, 2], 6).indices.shape == (2, 2)
    assert nearest_images(torch.eye(3), torch.eye(3), 6).indices.shape == (3, 3)


def test_queries_have_different_classes():
    labels = torch.tensor([0] * 50 + [1] * 3 + [2] * 2)
    assert sorted(labels[choose_queries(labels, 3)].tolist()) == [0, 1, 2]
    rows = choose_queries(labels, 6)  # more than classes
    assert len(set(rows)) == 6
    assert choose_queries(torch.full((11,), -1), 6) == [0, 2, 4, 6, 8, 10]  # no classes
    assert choose_queries(torch.tensor([4, 4]), 6) == [0, 1]
