import numpy as np
from PIL import Image

from scfs.visualize.segmentation import SegmentedPicture, coloured, palette, save_segmentations


def test_the_palette_is_that_of_voc():
    assert palette()[[0, 1, 2, 15, 20]].tolist() == [[0, 0, 0], [128, 0, 0], [0, 128, 0], [192, 128, 128], [0, 64, 128]]
    assert palette()[255].tolist() == [224, 224, 192]


def test_classes_are_coloured_and_the_background_is_grey():
    image = np.array([[[30, 60, 90], [30, 60, 90], [0, 0, 0]]], np.uint8)
    found = coloured(image, np.array([[0, 1, 255]], np.uint8))
    assert found.tolist() == [[[60, 60, 60], [int(18 + 0.7 * 128), 18, 18], [156, 156, 134]]]


def test_the_picture(tmp_path):
    image, labels = np.zeros((8, 12, 3), np.uint8), np.arange(96, dtype=np.uint8).reshape(8, 12) % 4
    pictures = [SegmentedPicture(image, {"truth": labels, "linear": labels})] * 2
    save_segmentations(tmp_path / "new" / "out.png", pictures, ["background", "cat", "dog", "sheep"])
    wide = np.asarray(Image.open(tmp_path / "new" / "out.png").convert("RGB"))
    reds = (wide == (np.array([128, 0, 0]) * 0.7).astype(np.uint8)).all(-1).sum()
    assert reds > 1000  # of the maps; the image itself is black
    assert (wide == [128, 0, 0]).all(-1).sum() > 20  # in the legend, which is not cut off
