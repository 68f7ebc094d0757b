"""Properties of the boxes of views, for images of any size."""

from random import Random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from properties import quick

from scfs.data.render import ViewDraw, render_fast
from scfs.data.views import MultiCrop, _draw_box, _relative_box
from scfs.method.search import box_in_view

WHOLE = torch.tensor([0.0, 0.0, 1.0, 1.0], dtype=torch.float64)
SIDES = st.integers(1, 3000)
SEEDS = st.integers(0, 2**63 - 1)
SCALES = st.tuples(st.floats(1e-3, 1), st.floats(1e-3, 1)).map(sorted).map(tuple)


@st.composite
def crops(draw, count, sides=SIDES):
    """An image size, and the boxes of some crops of it, relative (count, 4)."""
    size, random = (draw(sides), draw(sides)), Random(draw(SEEDS))
    boxes = [_draw_box(size, draw(SCALES), random) for _ in range(count)]
    return size, torch.tensor([_relative_box(box, size) for box in boxes], dtype=torch.float64)


def in_image(boxes, view, flip):
    """Boxes in a view as boxes in the image: the inverse of `box_in_view`, by the same function."""
    origin, extent = view[:2], view[2:] - view[:2]
    image_in_view = torch.cat([-origin / extent, (1 - origin) / extent])
    unflipped, _ = box_in_view(boxes, WHOLE, flip)
    return box_in_view(unflipped, image_in_view, torch.tensor(False))[0]


@quick
@given(SIDES, SIDES, SCALES, SEEDS)
def test_a_crop_lies_inside_the_image_and_is_never_empty(width, height, scale, seed):
    top, left, box_height, box_width = _draw_box((width, height), scale, Random(seed))
    assert 0 <= top < top + box_height <= height
    assert 0 <= left < left + box_width <= width
    # Aspect ratios from 3:4 to 4:3, up to rounding to pixels.
    assert (box_width - 1) / (box_height + 1) <= 4 / 3
    assert (box_width + 1) / max(1e-9, box_height - 1) >= 3 / 4
    x0, y0, x1, y1 = _relative_box((top, left, box_height, box_width), (width, height))
    assert 0 <= x0 < x1 <= 1
    assert 0 <= y0 < y1 <= 1


@quick
@given(crops(2), st.booleans())
def test_a_box_mapped_to_a_view_and_back_is_what_the_view_shows_of_it(crop, flip):
    _, (box, view) = crop
    flip = torch.tensor(flip)
    mapped, inside = box_in_view(box, view, flip)
    assert torch.all((mapped >= 0) & (mapped <= 1))
    assert torch.all(mapped[2:] >= mapped[:2])
    low, high = torch.maximum(box[:2], view[:2]), torch.minimum(box[2:], view[2:])
    area = (high - low).clamp(min=0).prod() / (box[2:] - box[:2]).prod()
    assert float(inside) == pytest.approx(float(area), abs=1e-9)
    if inside > 0:
        assert torch.allclose(in_image(mapped, view, flip), torch.cat([low, high]), atol=1e-9)


@quick
@given(crops(2), st.booleans(), st.booleans())
def test_a_view_mapped_to_itself_and_over_another_view_is_the_whole_of_it(crop, flip, other_flip):
    _, (view, other) = crop
    flips = torch.tensor([flip, other_flip])
    mapped, inside = box_in_view(view, view, flips[0])
    assert torch.allclose(mapped, WHOLE)
    assert float(inside) == pytest.approx(1)
    covering = torch.stack([torch.minimum(view, other)[:2], torch.maximum(view, other)[2:]]).flatten()
    there, inside = box_in_view(view, covering, flips[1])
    assert float(inside) == pytest.approx(1)
    back = in_image(there, covering, flips[1])
    assert torch.allclose(box_in_view(back, view, flips[0])[0], WHOLE, atol=1e-6)


@quick
@given(crops(2))
def test_flipping_a_view_mirrors_the_boxes_in_it(crop):
    _, (box, view) = crop
    plain, inside = box_in_view(box, view, torch.tensor(False))
    mirrored, same = box_in_view(box, view, torch.tensor(True))
    assert torch.allclose(mirrored, torch.stack([1 - plain[2], plain[1], 1 - plain[0], plain[3]]))
    assert inside == same


@quick
@given(st.integers(12, 60), st.integers(12, 60), st.booleans(), SEEDS)
def test_a_view_shows_what_its_box_says(width, height, flip, seed):
    """Red and green are the position in the image: the view's corners must be those of its box."""
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[..., 0] = np.linspace(0, 255, width, dtype=np.uint8)
    pixels[..., 1] = np.linspace(0, 255, height, dtype=np.uint8)[:, None]
    box = _draw_box((width, height), (0.3, 1.0), Random(seed))
    view = render_fast(pixels, ViewDraw(box, flip, jitter=(), grey=False, blur_radius=None, solarize=False), 16)
    x0, y0, x1, y1 = _relative_box(box, (width, height))
    left, right = (x1, x0) if flip else (x0, x1)
    shown = [view[8, 0, 0], view[8, -1, 0], view[0, 8, 1], view[-1, 8, 1]]
    assert np.asarray(shown) / 255 == pytest.approx([left, right, y0, y1], abs=0.1)


@quick
@given(st.integers(1, 40), st.integers(1, 40), SEEDS)
def test_views_of_any_image_carry_boxes_inside_it(width, height, seed):
    views = MultiCrop(global_size=8, local_size=8, num_local_views=2, global_scale=(0.4, 1.0), local_scale=(0.05, 0.4))
    batch = views(Image.new("RGB", (width, height)), seed)
    boxes = torch.cat([batch.global_boxes, batch.local_boxes])
    assert torch.all((boxes >= 0) & (boxes <= 1))
    assert torch.all(boxes[:, 2:] > boxes[:, :2])
    assert boxes.shape == (4, 4)
