import math
from random import Random

import numpy as np
import pytest
import torch
from PIL import Image, ImageFilter
from torchvision.transforms import v2

from scfs.data.packed_batch import pack, stack_images
from scfs.data.render import render_reference
from scfs.data.views import (
    MultiCrop,
    ViewKind,
    as_tensor,
    centre_view,
    normalize,
    normalize_views,
)
from scfs.preprocessing import IMAGENET_MEAN, IMAGENET_STD


def multi_crop(num_local_views=3, **changes):
    settings = {"global_size": 32, "local_size": 16, "global_scale": (0.25, 1.0), "local_scale": (0.05, 0.25)}
    return MultiCrop(num_local_views=num_local_views, **{**settings, **changes})


@pytest.fixture
def ramp():
    """Red is the column, green the row: a view shows where it was cropped."""
    rows, columns = np.mgrid[0:100, 0:160]
    pixels = np.stack([columns, rows, np.full_like(rows, 100)], axis=-1).astype(np.uint8)
    return Image.fromarray(pixels)


def plain(views):
    """No colour changes: only geometry."""
    views.jitter_probability = views.grey_probability = 0.0
    views.kinds = [ViewKind(kind.size, kind.scale, blur=0.0) for kind in views.kinds]
    return views


@pytest.mark.parametrize("num_local_views", [0, 1, 5])
def test_shapes(ramp, num_local_views):
    views = multi_crop(num_local_views)(ramp, seed=1)
    assert views.global_views.shape == (2, 3, 32, 32)
    assert views.local_views.shape == (num_local_views, 3, 16, 16)
    assert views.local_boxes.shape == (num_local_views, 4)
    batch = stack_images([views, views])
    assert batch.global_views.shape == (2, 2, 3, 32, 32)
    assert batch.local_flips.shape == (num_local_views, 2)


def test_a_batch_is_sent_in_one_block_of_shared_memory(ramp):
    samples = [multi_crop(3)(ramp, seed) for seed in (1, 2)]
    packed = pack(samples, share_memory=True)
    assert packed.pixels.is_shared()
    batch = packed.unpack()
    assert batch.global_views.untyped_storage().data_ptr() == batch.local_views.untyped_storage().data_ptr()
    assert batch.global_views[0].is_contiguous(memory_format=torch.channels_last)
    for i, sample in enumerate(samples):
        assert all(torch.equal(stacked[:, i], one) for stacked, one in zip(batch, sample, strict=True))


@pytest.mark.parametrize("path", ["fast", "reference"])
def test_boxes_and_flips_locate_a_view(ramp, path):
    views = plain(multi_crop(path=path))
    flipped = 0
    for seed in range(20):
        batch = views(ramp, seed)
        for view, box, flip in zip(
            [*batch.global_views, *batch.local_views],
            torch.cat([batch.global_boxes, batch.local_boxes]).tolist(),
            torch.cat([batch.global_flips, batch.local_flips]).tolist(),
            strict=True,
        ):
            flipped += flip
            columns, rows = view[0].float().mean(dim=0), view[1].float().mean(dim=1)
            if flip:
                columns = columns.flip(0)
            width = len(columns)
            for position, edge in ((0, 0.5 / width), (width - 1, 1 - 0.5 / width)):
                assert columns[position].item() == pytest.approx(160 * (box[0] + edge * (box[2] - box[0])), abs=2.5)
                assert rows[position].item() == pytest.approx(100 * (box[1] + edge * (box[3] - box[1])), abs=2.5)
    assert 20 < flipped < 80  # of 100


def test_equal_seeds_give_equal_views_whatever_came_before(ramp):
    views = multi_crop()
    first = views(ramp, seed=7)
    torch.rand(5)
    views(ramp, seed=8)
    for ours, theirs in zip(first, views(ramp, seed=7), strict=True):
        assert torch.equal(ours, theirs)
    assert not torch.equal(first.global_views, views(ramp, seed=8).global_views)


def test_drawing_leaves_torchs_generator_alone(ramp):
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    multi_crop()(ramp, seed=1)
    assert torch.equal(torch.rand(4), expected)


def test_drawn_with_the_papers_probabilities(ramp):
    views, random = multi_crop(), Random(0)
    draws = {kind: [views.draw(ramp.size, kind, random) for _ in range(600)] for kind in dict.fromkeys(views.kinds)}
    first, second, local = draws.values()
    every = [*first, *second, *local]

    def fraction(happened, of):
        return sum(bool(happened(d)) for d in of) / len(of)

    assert fraction(lambda d: d.blur_radius is not None, first) == 1.0
    assert fraction(lambda d: d.blur_radius is not None, second) == pytest.approx(0.1, abs=0.05)
    assert fraction(lambda d: d.blur_radius is not None, local) == pytest.approx(0.5, abs=0.08)
    assert fraction(lambda d: d.solarize, second) == pytest.approx(0.2, abs=0.06)
    assert fraction(lambda d: d.solarize, first + local) == 0.0
    assert fraction(lambda d: bool(d.jitter), every) == pytest.approx(0.8, abs=0.04)
    assert fraction(lambda d: d.grey, every) == pytest.approx(0.2, abs=0.04)
    assert fraction(lambda d: d.flip, every) == pytest.approx(0.5, abs=0.05)
    radii = [d.blur_radius for d in every if d.blur_radius is not None]
    assert 0.1 <= min(radii) < 0.2
    assert 1.9 < max(radii) <= 2.0
    areas = [d.box[2] * d.box[3] / 16000 for d in first]
    assert 0.24 < min(areas) < 0.35
    assert 0.75 < max(areas) <= 0.84  # 4:3 of the full height
    assert max(d.box[2] * d.box[3] / 16000 for d in local) < 0.26
    ratios = [math.log(d.box[3] / d.box[2]) for d in local]
    assert max(map(abs, ratios)) < math.log(4 / 3) + 0.1
    factors = [dict(d.jitter) for d in every if d.jitter]
    for name, low, high in (
        ("brightness", 0.6, 1.4),
        ("contrast", 0.6, 1.4),
        ("saturation", 0.8, 1.2),
        ("hue", -0.1, 0.1),
    ):
        values = [f[name] for f in factors]
        assert fraction(lambda d, name=name: d.jitter and d.jitter[0][0] == name, every) == pytest.approx(0.2, abs=0.04)
        assert low <= min(values) < low + 0.05 * (high - low)
        assert high - 0.05 * (high - low) < max(values) <= high


@pytest.mark.parametrize("size", [(160, 100), (100, 160), (400, 20), (20, 400)])
def test_boxes_are_drawn_as_torchvision_draws_them(size):
    """Same distribution: the means of each side and corner of many boxes agree, panoramas included."""
    views, random = multi_crop(), Random(1)
    kind = ViewKind(24, (0.2, 0.9), blur=0.0)
    ours = np.array([views.draw(size, kind, random).box for _ in range(3000)])
    torch.manual_seed(1)
    crop, image = v2.RandomResizedCrop(24, scale=kind.scale), Image.new("RGB", size)
    drawn = [crop.make_params([image]) for _ in range(3000)]
    theirs = np.array([[d["top"], d["left"], d["height"], d["width"]] for d in drawn])
    error = np.sqrt((ours.var(0) + theirs.var(0)) / 3000)
    assert (np.abs(ours.mean(0) - theirs.mean(0)) <= 4 * error + 1e-9).all()
    for percent in (5, 50, 95):
        np.testing.assert_allclose(
            np.percentile(ours, percent, 0), np.percentile(theirs, percent, 0), atol=0.05 * max(size)
        )


def test_rendered_as_dino_does(ramp):
    """The same draw through the operations DINO composes, in its order."""
    views, random = multi_crop(), Random(5)
    kind = ViewKind(24, (0.3, 0.6), blur=1.0, solarize=1.0)
    for _ in range(20):
        draw = views.draw(ramp.size, kind, random)
        top, left, height, width = draw.box
        view = ramp.crop((left, top, left + width, top + height)).resize((24, 24), Image.Resampling.BICUBIC)
        if draw.flip:
            view = view.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        for name, factor in draw.jitter:
            view = getattr(v2.functional, f"adjust_{name}")(view, factor)
        if draw.grey:
            view = view.convert("L").convert("RGB")
        view = view.filter(ImageFilter.GaussianBlur(draw.blur_radius))
        pixels = np.asarray(view)
        pixels = np.where(pixels >= 128, 255 - pixels, pixels) if draw.solarize else pixels
        np.testing.assert_array_equal(render_reference(ramp, draw, 24), pixels)


def test_normalised_with_imagenets_mean_and_std(ramp):
    expected = (np.asarray(ramp) / 255 - np.array(IMAGENET_MEAN)) / np.array(IMAGENET_STD)
    np.testing.assert_allclose(normalize(as_tensor(ramp)).permute(1, 2, 0), expected, atol=1e-5)


def test_centre_view_is_the_evaluation_protocol(ramp):
    expected = ramp.resize((int(160 * 256 / 100), 256), Image.Resampling.BICUBIC)
    left = round((expected.width - 224) / 2)
    expected = expected.crop((left, 16, left + 224, 240))
    assert torch.equal(centre_view(ramp, 224), as_tensor(expected))


def test_views_stay_channels_last_in_memory(ramp):
    """As convolutions on a CPU need them, without a copy."""
    batch = stack_images([multi_crop()(ramp, seed) for seed in (1, 2)])
    for views in (batch.global_views, normalize_views(batch).local_views):
        assert views.flatten(0, 1).is_contiguous(memory_format=torch.channels_last)


def test_blur_is_relative_to_the_papers_radii():
    """Everything else of a view is drawn as before."""
    draws = [
        [views.draw((90, 90), kind, Random(seed)) for seed in range(50) for kind in views.kinds]
        for views in (multi_crop(), multi_crop(blur=0.25), multi_crop(blur=0))
    ]
    assert any(draw.blur_radius for draw in draws[0])
    for paper, small, none in zip(*draws, strict=True):
        assert none.blur_radius is None
        assert (small.blur_radius or 0) == 0.25 * (paper.blur_radius or 0)
        assert paper._replace(blur_radius=None) == small._replace(blur_radius=None) == none
