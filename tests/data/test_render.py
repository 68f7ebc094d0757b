"""The fast view path against the reference path: how far apart may they be, operation by operation?

Levels go up to 255. A bound on the mean shows that the pictures are the same; a bound on the largest difference shows
that no pixel is far off, and is loose where the two round hues differently or where Pillow blurs with boxes.
"""

from random import Random

import numpy as np
import pytest
from PIL import Image, ImageFilter
from torchvision.transforms.v2 import functional as F

from scfs.data import render
from scfs.data.scenes import render_scene
from scfs.data.views import MultiCrop


@pytest.fixture(scope="module")
def images():
    """Scenes, and noise of every colour."""
    noise = np.random.default_rng(0).integers(0, 256, (96, 128, 3), dtype=np.uint8)
    return [*(render_scene(0, "val", i).image for i in range(4)), noise]


def difference(ours, theirs):
    return np.abs(np.asarray(ours).astype(int) - np.asarray(theirs).astype(int))


def assert_close(ours, theirs, *, largest, mean):
    differences = difference(ours, theirs)
    assert differences.max() <= largest
    assert differences.mean() <= mean


@pytest.mark.parametrize("box", [(0, 0, 96, 96), (10, 20, 70, 90), (30, 40, 20, 24)])
@pytest.mark.parametrize("size", [32, 64])
def test_resize(images, box, size):
    for image in images:
        theirs = F.resized_crop(Image.fromarray(image), *box, size=[size, size], interpolation=3)
        assert_close(render.resize(image, box, size), theirs, largest=1, mean=0.05)


@pytest.mark.parametrize(
    ("name", "factors", "largest", "mean"),
    [
        ("brightness", (0.6, 0.83, 1.0, 1.4), 1, 0.1),
        ("contrast", (0.6, 0.83, 1.0, 1.4), 2, 0.6),
        ("saturation", (0.8, 0.95, 1.0, 1.2), 2, 0.8),
        ("hue", (-0.1, -0.03, 0.0, 0.02, 0.1), 20, 2.5),
    ],
)
def test_adjust(images, name, factors, largest, mean):
    for image in images:
        for factor in factors:
            theirs = getattr(F, f"adjust_{name}")(Image.fromarray(image), factor)
            assert_close(render.ADJUST[name](image, factor), theirs, largest=largest, mean=mean)


@pytest.mark.parametrize(("radius", "largest", "mean"), [(0.1, 8, 1), (0.5, 20, 3), (1.0, 20, 2), (2.0, 30, 2)])
def test_blur(images, radius, largest, mean):
    for image in images:
        theirs = Image.fromarray(image).filter(ImageFilter.GaussianBlur(radius))
        assert_close(render.blur(image, radius), theirs, largest=largest, mean=mean)


def test_whole_views(images):
    """The same draws through both paths: on average within two levels."""
    settings = {"global_size": 64, "local_size": 32, "num_local_views": 4}
    views = MultiCrop(**settings, global_scale=(0.25, 1), local_scale=(0.05, 0.25))
    random, differences, grey = Random(0), [], 0
    for image in images[:4] * 5:
        for kind in views.kinds:
            draw = views.draw((128, 128), kind, random)._replace(solarize=False)  # which flips levels at a threshold
            ours, theirs = (
                render.render_fast(image, draw, kind.size),
                render.render_reference(Image.fromarray(image), draw, kind.size),
            )
            grey += draw.grey and not (ours[..., 0] != ours[..., 1]).any()
            differences.append(difference(ours, theirs).mean())
    assert np.mean(differences) < 1.5
    assert max(differences) < 4
    assert grey > 5


def test_solarize_is_exact(images):
    draw = render.ViewDraw((0, 0, 96, 96), flip=True, jitter=(), grey=False, blur_radius=None, solarize=True)
    for image in images:
        ours, theirs = render.render_fast(image, draw, 96), render.render_reference(Image.fromarray(image), draw, 96)
        assert_close(ours, theirs, largest=1, mean=0.05)
