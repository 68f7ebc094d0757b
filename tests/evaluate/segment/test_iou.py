"""Scores and cells of label maps, against plain loops."""

import math

import numpy as np
import pytest
import torch
from label_maps import label_map

from scfs.data.segmentation import VOID
from scfs.evaluate.segment.cells import class_fractions, sampled
from scfs.evaluate.segment.iou import SegmentationScore, count_pixels


def test_miou_equals_loops():
    truths, found = (
        [label_map(seed, (7, 9), void=void) for seed in seeds] for seeds, void in ((range(3), 0.2), (range(3, 6), 0))
    )
    counts = np.stack([count_pixels(t, p, 6) for t, p in zip(truths, found, strict=True)])
    score = SegmentationScore.of(counts)
    expected, right, kept = [], 0, 0
    for label in range(6):
        both = either = 0
        for t, p in zip(np.concatenate(truths).ravel().tolist(), np.concatenate(found).ravel().tolist(), strict=True):
            if t != VOID:
                both += t == p == label
                either += label in (t, p)
                right, kept = right + (label == 0 and t == p), kept + (label == 0)
        expected.append(both / either if either else math.nan)
    assert score.per_class == pytest.approx(expected, nan_ok=True)
    assert [math.isnan(value) for value in expected] == [False] * 4 + [True] * 2  # 4 and 5 do not occur
    assert score.miou == pytest.approx(sum(expected[:4]) / 4)
    assert score.accuracy == pytest.approx(right / kept)
    assert score.absent("abcdef") == ["e", "f"]
    assert score.by_class("abcdef")["f"] is None


def test_a_class_that_is_only_predicted_counts():
    counts = count_pixels(np.array([[0, 0, 1, 1]]), np.array([[0, 2, 1, 1]]), 4)
    assert counts.tolist() == [[1, 2, 0, 0], [2, 2, 0, 0], [1, 2, 1, 0]]
    assert SegmentationScore.of(counts[None]).miou == pytest.approx((1 / 2 + 1 + 0) / 3)


def test_the_interval_is_over_images():
    good, bad = count_pixels(np.zeros((1, 4), int), np.zeros((1, 4), int), 3), np.array([[0] * 3, [4, 0, 0], [0, 4, 0]])
    same = SegmentationScore.of(np.stack([good] * 8))
    assert (same.miou, same.interval) == (1.0, pytest.approx((1.0, 1.0)))
    for count in (4, 64):
        score = SegmentationScore.of(np.stack([good, bad] * count))
        assert score.miou == pytest.approx(0.25)  # half of the background, nothing of the other class
        # Half of the fraction of good images, which varies as a mean of 2 `count` coins.
        assert np.diff(score.interval) == pytest.approx(2 * 1.96 * 0.5 * 0.5 / math.sqrt(2 * count), rel=0.15)
        assert np.mean(score.interval) == pytest.approx(0.25, abs=0.01)
        assert SegmentationScore.of(np.stack([good, bad] * count)).interval == score.interval
        assert SegmentationScore.of(np.stack([good, bad] * count), seed=1).interval != score.interval


def test_classes_of_a_single_image_do_not_move_the_interval():
    """Where images are drawn, such a class is missing from a third of the draws, and the others' mean is another."""
    usual = count_pixels(np.zeros((1, 4), int), np.zeros((1, 4), int), 2)
    score = SegmentationScore.of(np.stack([usual] * 9 + [np.array([[0, 0], [0, 4], [4, 0]])]))
    assert score.interval[0] < score.miou < score.interval[1] < 0.5


# Cells


def test_class_fractions_equal_loops():
    labels = label_map(0, (11, 7), void=0.5)
    labels[:4, :4] = VOID
    fractions = class_fractions(labels, (3, 2), 5)
    for row in range(3):
        for column in range(2):
            cell = [
                labels[y, x]
                for y in range(11)
                for x in range(7)
                if (y * 3 // 11, x * 2 // 7) == (row, column) and labels[y, x] != VOID
            ]
            expected = [cell.count(label) / max(1, len(cell)) for label in range(5)]
            assert fractions[row * 2 + column].tolist() == pytest.approx(expected)
    assert fractions[0].sum() == 0


def test_labels_are_sampled_in_the_middle_of_cells():
    labels = np.arange(6 * 9).reshape(6, 9).astype(np.uint8)
    assert torch.equal(sampled(labels, (2, 3)), torch.from_numpy(labels[1::3, 1::3]))
    assert torch.equal(sampled(labels, (12, 9)), torch.from_numpy(labels.repeat(2, axis=0)))
    assert sampled(np.full((1, 1), VOID, np.uint8), (2, 2)).tolist() == [[VOID] * 2] * 2
