import math

import numpy as np
import pytest
import torch
from PIL import Image

from scfs.backbones import Backbone
from scfs.data.views import as_tensor, normalize
from scfs.errors import UserError
from scfs.visualize.attention import Searcher, attend, mean_query, search_own_image, usable_side
from scfs.visualize.queries import random_boxes, tiles

TILES = [(200, 40, 40), (40, 160, 60), (60, 60, 220), (230, 220, 60)]


@pytest.fixture(scope="module")
def backbone():
    torch.manual_seed(0)
    return Backbone("resnet10_half")


def noise(width, height, seed=0):
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8))


def tiled(colours):
    """An image of 2 x 2 tiles with fine stripes of one colour each."""
    pixels = np.zeros((96, 96, 3), np.uint8)
    for number, colour in enumerate(colours):
        top, left = 48 * (number // 2), 48 * (number % 2)
        pixels[top : top + 48, left : left + 48] = colour
        pixels[top : top + 48 : 4, left : left + 48] = np.array(colour) // 2
    return Image.fromarray(pixels)


def maps_of(backbone, image, side):
    resized = image.resize((side, side), Image.Resampling.BICUBIC)
    with torch.no_grad():
        return [each[0].tolist() for each in backbone.eval()(normalize(as_tensor(resized))[None])[1]]


def cosines(query_map, key_map):
    """Eqs. 7-8 as loops: maps are nested lists (C, H, W)."""
    query = [sum(sum(row) for row in channel) / (len(channel) * len(channel[0])) for channel in query_map]
    result = []
    for y in range(len(key_map[0])):
        result.append([])
        for x in range(len(key_map[0][0])):
            key = [channel[y][x] for channel in key_map]
            product = sum(a * b for a, b in zip(query, key, strict=True))
            result[-1].append(product / math.sqrt(sum(a * a for a in query) * sum(b * b for b in key)))
    return result


def test_attention_equals_loops(backbone):
    image, queries = noise(80, 56), [noise(20, 20, 1), noise(30, 24, 2)]
    searcher = Searcher(backbone, side=64, query_side=32)
    found = attend(searcher.queries(queries), searcher.keys([noise(9, 9, 4), image]))
    assert list(found) == backbone.layers
    keys, query_maps_of_each = maps_of(backbone, image, 64), [maps_of(backbone, query, 32) for query in queries]
    for i, attention in enumerate(found.values()):
        expected = [cosines(query_maps[i], keys[i]) for query_maps in query_maps_of_each]
        assert attention.dtype == np.float32
        np.testing.assert_allclose(attention[:, 1], expected, rtol=1e-4, atol=1e-5)


def test_a_query_is_found_in_its_image_and_in_another(backbone):
    """Attention is highest on the tile that the query was cropped from, wherever it is."""
    searcher = Searcher(backbone, side=96, query_side=32)
    image, other = tiled(TILES), tiled([TILES[1], TILES[0], TILES[1], TILES[1]])
    found = search_own_image(searcher, image, [(8, 8, 40, 40)])
    elsewhere = attend(searcher.queries(found.queries), searcher.keys([other]))["layer2"][0, 0]
    for attention, tile in ((found.maps["layer2"][0], 0), (elsewhere, 1)):
        y, x = np.unravel_index(attention.argmax(), attention.shape)
        assert (2 * y // attention.shape[0], 2 * x // attention.shape[1]) == divmod(tile, 2)


def test_the_mean_query_of_a_jigsaw_is_the_mean_of_its_pooled_tiles(backbone):
    image = noise(80, 56)
    searcher = Searcher(backbone, side=64, query_side=32)
    crops = [image.crop(box) for box in tiles(image.size)]
    found = attend(mean_query(searcher.queries(crops)), searcher.keys([image]))
    means = [np.mean([np.array(maps_of(backbone, crop, 32)[i]).mean((1, 2)) for crop in crops], 0) for i in range(3)]
    for i, attention in enumerate(found.values()):
        expected = cosines(means[i][:, None, None].tolist(), maps_of(backbone, image, 64)[i])
        np.testing.assert_allclose(attention[0, 0], expected, rtol=1e-4, atol=1e-5)


def test_tiles_cover_the_image():
    assert tiles((31, 20)) == [(0, 0, 15, 10), (15, 0, 31, 10), (0, 10, 15, 20), (15, 10, 31, 20)]
    assert all(right > left and bottom > top for left, top, right, bottom in tiles((1, 1)))


def test_transformers_take_multiples_of_their_patch_size():
    torch.manual_seed(0)
    vit = Backbone("vit_tiny_patch16_224")
    assert [usable_side(vit, side) for side in (5, 48, 70, 95)] == [16, 48, 64, 96]
    searcher = Searcher(vit, side=usable_side(vit, 70), query_side=32)
    found = attend(searcher.queries([noise(10, 10)]), searcher.keys([noise(70, 50)]))
    assert [each.shape for each in found.values()] == [(1, 1, 4, 4)] * 3


def test_other_networks_take_any_size_or_refuse_it(backbone):
    assert usable_side(backbone, 53) == 53
    with torch.device("meta"):
        fixed = Backbone("hiera_tiny_224")
    with pytest.raises(UserError, match="cannot take images of 100 x 100"):
        usable_side(fixed, 100)


def test_boxes_are_squares_inside_the_image():
    boxes = random_boxes((40, 90), 50, area=0.25, seed=3)
    assert boxes == random_boxes((40, 90), 50, area=0.25, seed=3)
    assert len(set(boxes)) > 40
    for left, top, right, bottom in boxes:
        assert right - left == bottom - top == 20
        assert left >= 0
        assert top >= 0
        assert right <= 40
        assert bottom <= 90
