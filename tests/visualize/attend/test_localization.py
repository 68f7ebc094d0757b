import itertools

import numpy as np
import pytest

from scfs.visualize.attend.localization import GRID, distance_map, localization, mask_on_grid, on_grid


def by_pairs(values, inside):
    """AUROC as its definition says: every position inside against every position outside."""
    pairs = list(itertools.product(values[inside].tolist(), values[~inside].tolist()))
    return sum((a > b) + 0.5 * (a == b) for a, b in pairs) / len(pairs)


@pytest.mark.parametrize("levels", [3, 1000])
def test_auroc_equals_a_count_of_pairs(levels):
    rng = np.random.default_rng(levels)
    values = rng.integers(0, levels, (12, 12)).astype(np.float32)
    region, counted = rng.random((12, 12)) < 0.3, rng.random((12, 12)) < 0.8
    found = localization(values, region, counted)
    assert found.auroc == pytest.approx(by_pairs(values[counted], region[counted]))
    assert found.auroc != pytest.approx(by_pairs(values.ravel(), region.ravel()))


def test_pointing_is_the_position_of_most_attention():
    region = np.zeros((4, 4), np.bool_)
    region[:2] = True
    everywhere = np.ones((4, 4), np.bool_)
    values = np.zeros((4, 4), np.float32)
    assert localization(values, region, everywhere) == (0.5, 0.5)  # no position is better than another
    values[1, 3] = 1
    assert localization(values, region, everywhere).pointing == 1
    values[3, 0] = 2
    assert localization(values, region, everywhere).pointing == 0
    assert localization(values, region, values < 2).pointing == 1  # that position is not counted


def test_maps_and_masks_on_the_grid_agree():
    mask = np.zeros((30, 50), np.bool_)
    mask[10:20, 25:] = True
    grid = mask_on_grid(mask)
    assert grid.shape == (GRID, GRID)
    assert grid.mean() == pytest.approx(mask.mean(), abs=0.02)
    fine = on_grid(mask[None].astype(np.float32))[0]
    assert ((fine > 0.5) == grid).mean() > 0.98


def test_distance_from_a_box():
    distances = -distance_map((10, 0, 20, 40), (40, 40))
    centres = (np.arange(GRID) + 0.5) / GRID
    assert distances.shape == (GRID, GRID)
    np.testing.assert_allclose(distances[5], np.maximum(0, np.maximum(0.25 - centres, centres - 0.5)), atol=1e-6)
    corner = -distance_map((20, 20, 40, 40), (40, 40))[0, 0]
    assert corner == pytest.approx(np.hypot(0.5 - centres[0], 0.5 - centres[0]))
