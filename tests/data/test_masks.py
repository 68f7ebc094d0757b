"""Masks as COCO's tools draw them. What cannot be checked by eye was made with pycocotools 2.0.11."""

import numpy as np
import pytest

from scfs.data.masks import (
    BadSegmentation,
    SegmentsBuilder,
    decompressed,
    fine_polygon,
    mask_of_polygon,
    mask_of_runs,
    runs_of,
)

PYCOCO_WIDTH, PYCOCO_HEIGHT = 14, 9
PYCOCO_RLE = (
    "m05400MM030M030M0330000007LM",
    [29, 5, 4, 5, 4, 2, 1, 2, 4, 2, 1, 2, 4, 2, 1, 2, 4, 5, 4, 5, 4, 5, 4, 5, 11, 1, 8],
)


def drawn(polygon, width, height):
    return mask_of_polygon(fine_polygon(polygon).reshape(-1, 2), width, height)


def picture(*rows):
    return np.array([[mark == "#" for mark in row] for row in rows])


@pytest.mark.parametrize(
    ("polygon", "expected"),
    [
        ([1, 1, 4, 1, 4, 3, 1, 3], picture(".....", ".###.", ".###.", ".....")),
        ([4, 3, 1, 3, 1, 1, 4, 1], picture(".....", ".###.", ".###.", ".....")),  # the other way round
        ([1, 1, 4, 1, 4, 3, 1, 3, 1, 1], picture(".....", ".###.", ".###.", ".....")),  # closed
        ([-3, -2, 2, -2, 2, 9, -3, 9], picture("##...", "##...", "##...", "##...")),  # beyond the image
        ([7, 1, 9, 1, 9, 3], picture(".....", ".....", ".....", ".....")),  # outside
        (
            [0.7, 0.3, 10.9, 2.1, 7.3, 8.9, 2.5, 6.1],
            picture(
                "............",
                ".######.....",
                ".##########.",
                "..########..",
                "..########..",
                "..#######...",
                "...######...",
                ".....###....",
                ".......#....",
                "............",
            ),
        ),
        (
            [1, 0.5, 9.5, 0.5, 2, 7.5, 9, 7.5, 5.2, -1],
            picture(
                ".#####.....",
                "......###..",
                "...........",
                "......#....",
                ".....###...",
                "....####...",
                "...######..",
                "..#######..",
            ),
        ),
    ],
)
def test_polygons(polygon, expected):
    height, width = expected.shape
    assert np.array_equal(drawn(polygon, width, height), expected)


def test_several_polygons_are_one_object():
    builder = SegmentsBuilder()
    builder.add([[0, 0, 2, 0, 2, 1, 0, 1]])
    builder.add([[0, 0, 1, 0, 1, 1, 0, 1], [2, 1, 3, 1, 3, 2, 2, 2]])
    builder.add(None)
    builder.add({"size": [2, 3], "counts": [1, 2, 3]})
    segments = builder.build()
    assert segments.kinds.tolist() == [1, 1, 0, 2]
    found = [segments.mask(row, 3, 2) for row in range(4)]
    assert np.array_equal(found[0], picture("##.", "..."))
    assert np.array_equal(found[1], picture("#..", "..#"))
    assert np.array_equal(found[2], picture("...", "..."))
    assert np.array_equal(found[3], picture(".#.", "#.."))


def test_runs_go_down_the_columns():
    assert np.array_equal(mask_of_runs([2, 1, 1, 2], 3, 2), picture(".##", "..#"))
    assert np.array_equal(mask_of_runs([0, 6], 3, 2), picture("###", "###"))


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("06", [0, 6]),
        ("23O", [2, 3, -1]),  # hand-made: a sign, before differences begin
        ("1234", [1, 2, 3, 6]),  # 4 more than the second
        ("P1", [32]),  # two groups of five bits
        PYCOCO_RLE,
    ],
)
def test_compressed_runs(text, counts):
    assert decompressed(text) == counts


def test_compressed_and_uncompressed_runs_are_the_same():
    text, counts = PYCOCO_RLE
    size = [PYCOCO_HEIGHT, PYCOCO_WIDTH]
    ours, theirs = (runs_of({"size": size, "counts": each}) for each in (text, counts))
    assert ours[0].tolist() == theirs[0].tolist()
    assert ours[1] == theirs[1] == (PYCOCO_WIDTH, PYCOCO_HEIGHT)


@pytest.mark.parametrize(
    "segmentation",
    [
        "polygon",
        7,
        [1, 1, 4, 1, 4, 3],  # not a list of polygons
        [[1, 1, 4, 1]],  # two points
        [[1, 1, 4, 1, 4, 3, 2]],
        [[1, 1, 4, 1, 4, float("nan")]],
        [["a", "b", "c", "d", "e", "f"]],
        {"counts": [6]},
        {"size": [2, 3]},
        {"size": [2, 3], "counts": [1, 2]},  # not the whole image
        {"size": [2, 3], "counts": [7, -1]},
        {"size": [2, 3], "counts": "P"},  # cut short
        {"size": [2, 3], "counts": "\u00e9"},
        {"size": [2], "counts": [2]},
        {"size": [2, 3], "counts": None},
    ],
)
def test_bad_segmentations(segmentation):
    builder = SegmentsBuilder()
    with pytest.raises(BadSegmentation):
        builder.add(segmentation)
    assert (len(builder.values), len(builder.kinds)) == (0, 0)
