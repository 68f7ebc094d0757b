"""Batched colour augmentations against view-by-view ones, operation by operation. Levels go up to 255.

The batched ones do not round between operations, hence a difference of a level or two; for hues, OpenCV has a table.
"""

from random import Random

import numpy as np
import pytest
import torch
from PIL import Image

from scfs.data import colours, render
from scfs.data.colours import as_row, coloured, without_colours
from scfs.data.packed_batch import stack_images
from scfs.data.scenes import render_scene
from scfs.data.views import MultiCrop, normalize_views

PLAIN = render.ViewDraw((0, 0, 128, 128), flip=False, jitter=(), grey=False, blur_radius=None, solarize=False)


@pytest.fixture(scope="module")
def images():
    noise = np.random.default_rng(0).integers(0, 256, (128, 128, 3), dtype=np.uint8)
    return [*(render_scene(0, "val", i).image for i in range(4)), noise]


def batched(images, draws):
    """Each image in the colours of its draw, in one batch, (n, H, W, 3)."""
    views = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).unsqueeze(0)
    rows = torch.tensor([[as_row(draw) for draw in draws]])
    return coloured(views, rows)[0].permute(0, 2, 3, 1).numpy()


def assert_close(images, draws, *, largest, mean):
    for image, draw, ours in zip(images, draws, batched(images, draws), strict=True):
        theirs = render.render_fast(image, draw, 128)
        differences = np.abs(ours.astype(int) - theirs.astype(int))
        assert differences.max() <= largest
        assert differences.mean() <= mean


@pytest.mark.parametrize(
    ("name", "factors", "largest", "mean"),
    [
        ("brightness", (0.6, 0.83, 1.0, 1.2, 1.4), 1, 0.6),
        ("contrast", (0.6, 0.83, 1.0, 1.2, 1.4), 2, 0.8),
        ("saturation", (0.8, 0.95, 1.0, 1.1, 1.2), 1, 0.3),
        ("hue", (-0.1, -0.03, 0.0, 0.02, 0.1), 12, 2.5),
    ],
)
def test_adjust(images, name, factors, largest, mean):
    """Each image has its own factor."""
    assert_close(images, [PLAIN._replace(jitter=((name, f),)) for f in factors], largest=largest, mean=mean)


def test_blur(images):
    draws = [PLAIN._replace(blur_radius=r) for r in (0.1, 0.5, 1.0, 1.5, 2.0)]
    assert_close(images, draws, largest=1, mean=0.3)


def test_grey_and_solarize(images):
    assert_close(images, [PLAIN._replace(grey=True)] * 5, largest=1, mean=0.3)
    assert_close(images, [PLAIN._replace(solarize=True)] * 5, largest=0, mean=0)


def test_order_of_operations_is_preserved(images):
    """Contrast before brightness is not brightness before contrast."""
    jitter = (("brightness", 2.5), ("contrast", 0.3))
    first, second = (PLAIN._replace(jitter=order) for order in (jitter, jitter[::-1]))
    forth, back = batched(images[:2], [first, second]), batched(images[:2], [second, first])
    assert np.abs(forth.astype(int) - back.astype(int)).mean() > 10
    assert_close(images[:2], [first, second], largest=3, mean=2)  # which multiplies what was rounded


def test_whole_views(images):
    """The same seeds with colours from the loader and from the device: on average within a level and a half."""
    settings = {"global_size": 64, "local_size": 32, "num_local_views": 4}
    scales = {"global_scale": (0.25, 1), "local_scale": (0.05, 0.25)}
    batches = [
        stack_images(
            [MultiCrop(**settings, **scales, colours=where)(Image.fromarray(x), i) for i, x in enumerate(images * 4)]
        )
        for where in ("loader", "device")
    ]
    assert [batch.colours.shape for batch in batches] == [(6, 20, 0), (6, 20, 11)]
    loader, device = (normalize_views(batch) for batch in batches)
    assert device.colours.shape == (6, 20, 0)
    for ours, theirs in ((device.global_views, loader.global_views), (device.local_views, loader.local_views)):
        assert (ours - theirs).abs().mean() * 0.226 * 255 < 1.5  # the deviation that views are divided by


def test_colours_leave_geometry_alone():
    multi_crop = MultiCrop(
        global_size=64, local_size=32, num_local_views=2, global_scale=(0.3, 1), local_scale=(0.1, 0.3)
    )
    draw = multi_crop.draw((100, 80), multi_crop.kinds[0], Random(1))
    assert without_colours(draw)[:2] == draw[:2]
    assert as_row(without_colours(draw)) == [1.0] * 4 + [-1.0] * 4 + [0.0] * 3
    assert list(colours.ADJUST) == list(render.ADJUST)
