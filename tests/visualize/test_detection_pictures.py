from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageColor

from scfs.data.sources import open_annotated
from scfs.visualize.detections import COLOURS, GAP, SIDE, TITLE, DrawnObjects, save_detections

SHARED = Path(__file__).parents[3] / "shared" / "data"
CLASSES = tuple(f"class {i}" for i in range(30))
GREY = (90, 90, 90)


def objects(boxes, labels, scores=None, masks=None):
    scores = None if scores is None else np.array(scores, np.float32)
    return DrawnObjects(np.array(boxes, np.float32).reshape(-1, 4), np.array(labels, np.int64), scores, masks)


def draw(path, images, truths, founds, **options):
    """The picture's pixels, and for each image its two cells."""
    save_detections(path, images, truths, founds, CLASSES, **options)
    with Image.open(path) as picture:
        assert picture.format == "PNG"
        pixels = np.asarray(picture.convert("RGB"))
    cells, top = [], 0
    for image in images:
        width, height = (round(side * SIDE / max(image.size)) for side in image.size)
        lefts = [GAP + (SIDE - width) // 2, 2 * GAP + SIDE + (SIDE - width) // 2]
        top += TITLE
        cells.append([pixels[top : top + height, left : left + width] for left in lefts])
        top += height + GAP
    assert pixels.shape == (top, 2 * SIDE + 3 * GAP, 3)
    return pixels, cells


def drawn_in(pixels, colour):
    """Which pixels have exactly this colour."""
    return (pixels == ImageColor.getrgb(colour)).all(axis=-1)


def count(pixels, colour):
    return int(drawn_in(pixels, colour).sum())


def is_plain(pixels):
    """Whether nothing is drawn on a plain image, whose colour the file may hold as a mixture of two similar ones."""
    return np.ptp(pixels, axis=(0, 1)).max() <= 4


@pytest.mark.parametrize("side", [128, 640])
def test_boxes_are_where_they_should_be(tmp_path, side):
    """Whatever the size of the image: the same picture, down to the names."""
    image = Image.new("RGB", (side, side * 3 // 4), GREY)
    scale = side / 128
    truth = objects(scale * np.array([[20, 30, 100, 80]]), [4])
    found = objects(scale * np.array([[20, 30, 100, 80], [5, 5, 60, 60]]), [4, 7], [0.9, 0.4])
    pixels, ((known, predicted),) = draw(tmp_path / "a" / "picture.png", [image], [truth], [found])
    assert known.shape == (SIDE * 3 // 4, SIDE, 3)
    for cell in (known, predicted):
        changed = (np.abs(cell.astype(int) - GREY) > 40).any(axis=-1)
        rows, columns = np.flatnonzero(changed.any(axis=1)), np.flatnonzero(changed.any(axis=0))
        edges = [columns[0], columns[-1] + 1, rows[-1] + 1]
        np.testing.assert_allclose(edges, np.array([20, 100, 80]) * SIDE / 128, atol=2.5)
        assert 30 * SIDE / 128 - 20 < rows[0] < 30 * SIDE / 128 - 10  # a name of about 15 pixels stands on the box
        assert count(cell, COLOURS[0]) > 300
        assert count(cell, COLOURS[1]) == 0  # its score is too low
    assert count(predicted, COLOURS[0]) > count(known, COLOURS[0])  # the score
    assert (pixels[:TITLE] < 100).any()  # titles


def test_scores_from_the_minimum_on(tmp_path):
    image, found = Image.new("RGB", (200, 120), GREY), objects([[20, 30, 100, 80]], [0], [0.4])
    for min_score, drawn in ((0.3, True), (0.5, False)):
        options = {"min_score": min_score}
        _, ((known, predicted),) = draw(tmp_path / "p.png", [image], [objects([], [])], [found], **options)
        assert (count(predicted, COLOURS[0]) > 0) == drawn
        assert is_plain(known)


def test_masks_are_translucent(tmp_path):
    image, masks = Image.new("RGB", (SIDE, SIDE), GREY), np.zeros((1, SIDE, SIDE), np.bool_)
    masks[0, 100:200, 50:150] = True
    boxes = [[40, 90, 160, 210]]
    nothing = objects([], [], [], np.zeros((0, 0, 0), np.bool_))  # as decoded from no masks at all
    _, ((known, predicted),) = draw(tmp_path / "p.png", [image], [objects(boxes, [3], masks=masks)], [nothing])
    inside, outside = known[150, 100].astype(int), known[150, 155].astype(int)
    assert np.abs(outside - GREY).max() < 12
    distances = [np.abs(inside - other).sum() for other in (np.array(GREY), ImageColor.getrgb(COLOURS[0]))]
    assert min(distances) > 40  # between the two
    edge = known[150, 47:54].astype(int)
    assert np.abs(edge - ImageColor.getrgb(COLOURS[0])).sum(axis=1).min() < 40  # the outline
    assert is_plain(predicted)


def test_a_class_has_one_colour_in_all_images(tmp_path):
    image = Image.new("RGB", (100, 200), GREY)
    truths = [objects([[10, 100, 80, 180]], [label]) for label in (5, 9, 9)]
    founds = [objects([[10, 100, 80, 180]], [label], [0.8]) for label in (9, 5, 9)]
    _, cells = draw(tmp_path / "p.png", [image] * 3, truths, founds)
    for row, truth, found in zip(cells, truths, founds, strict=True):
        for cell, drawn in zip(row, (truth, found), strict=True):
            used, unused = COLOURS[:2] if drawn.labels[0] == 9 else COLOURS[1::-1]  # 9 is the most frequent
            assert count(cell, used) > 300
            assert count(cell, unused) == 0


def test_names_do_not_cover_each_other(tmp_path):
    """Two objects with the same box: both names are there in full, though they could stand in one spot."""
    image, box = Image.new("RGB", (300, 300), GREY), [60, 60, 240, 240]
    _, ((first, both),) = draw(
        tmp_path / "p.png", [image], [objects([box], [1])], [objects([box, box], [1, 2], [0.9, 0.8])]
    )
    assert count(both, COLOURS[1]) > 0.6 * count(first, COLOURS[0])
    rows = [np.flatnonzero(drawn_in(both, colour).sum(axis=1) > 25) for colour in COLOURS[:2]]
    assert np.median(rows[0]) < np.median(rows[1])


def test_more_classes_than_colours(tmp_path):
    boxes = [[10 * i, 10 * i, 10 * i + 60, 10 * i + 60] for i in range(30)]
    image, truth = Image.new("RGB", (400, 400), GREY), objects(boxes, range(30))
    _, ((known, _),) = draw(tmp_path / "p.png", [image], [truth], [objects([], [], [])])
    assert all(count(known, colour) for colour in COLOURS)


def test_similar_colours_of_a_photo_replace_neither_white_nor_those_of_classes(tmp_path):
    rng = np.random.default_rng(0)
    noise = rng.integers(-6, 7, (SIDE, SIDE, 3))
    for colour in (COLOURS[0], "white"):
        image = Image.fromarray((ImageColor.getrgb(colour) + noise).clip(0, 255).astype(np.uint8))
        found = objects([[50, 50, 300, 300]], [0], [0.9])
        pixels, ((_, predicted),) = draw(tmp_path / "p.png", [image], [objects([], [])], [found])
        assert drawn_in(pixels[:, : GAP // 2], "white").all()
        assert drawn_in(predicted[38:50, 55:110], COLOURS[0]).mean() > 0.3  # behind the name


def test_colours_of_photos_are_smooth(tmp_path):
    """A photo has more colours than the file; neighbouring pixels make up for that."""
    ramp = np.linspace(0, 255, SIDE)
    red, green = np.meshgrid(ramp, ramp)
    smooth = np.stack([red, green, 128 + 100 * np.sin(red / 20)], axis=-1).astype(np.uint8)
    _, ((known, _),) = draw(tmp_path / "p.png", [Image.fromarray(smooth)], [objects([], [])], [objects([], [], [])])
    blocks = [each.reshape(SIDE // 10, 10, SIDE // 10, 10, 3).mean(axis=(1, 3)) for each in (smooth, known)]
    assert np.abs(blocks[0] - blocks[1]).mean() < 1.5


@pytest.mark.skipif(not (SHARED / "coco_tiny").is_dir(), reason="no such data beside the project")
def test_photos_take_little_space(tmp_path):
    _, source = open_annotated(f"coco:{SHARED / 'coco_tiny'}")
    rows = [0, 30, 41, 52]
    truths = [objects(source.objects(i).boxes, source.objects(i).labels, masks=source.masks(i)) for i in rows]
    founds = [truth._replace(scores=np.ones(len(truth.boxes), np.float32)) for truth in truths]
    images = [source.image(i) for i in rows]
    save_detections(tmp_path / "p.png", images, truths, founds, source.object_classes)
    with Image.open(tmp_path / "p.png") as picture:
        pixels = np.asarray(picture.convert("RGB"))
    assert all(count(pixels, colour) > 20 for colour in COLOURS)  # not replaced by similar colours of photos
    assert drawn_in(pixels[:, : GAP // 2], "white").all()
    assert 50_000 < (tmp_path / "p.png").stat().st_size < 300_000
