import numpy as np
from PIL import Image

from scfs.visualize.overlays import Scale, gradient, overlay, shared_scale


def test_one_scale_for_maps_of_any_shape():
    low, high = shared_scale([np.linspace(0.2, 0.6, 100, dtype=np.float32), np.full((3, 3), 0.4, np.float32)])
    assert 0.2 <= low < 0.25
    assert 0.55 < high <= 0.6
    assert shared_scale([np.full(4, 0.5, np.float32)]).high > 0.5  # constant maps have a scale too


def test_equal_cosines_have_equal_colours_in_every_picture():
    image, scale = Image.new("RGB", (40, 30), "grey"), Scale(0.0, 1.0)
    one = overlay(image, np.full((2, 2), 0.3, np.float32), scale)
    maps = np.array([[0.3, 0.3], [0.3, 0.9]], np.float32)
    other = overlay(image, maps, scale)
    assert one.size == image.size
    assert one.getpixel((0, 0)) == other.getpixel((0, 0))
    assert sum(other.getpixel((39, 29))) > sum(other.getpixel((0, 0)))  # brighter where more similar
    beyond = overlay(image, np.full((2, 2), 7.0, np.float32), scale)
    assert beyond.getpixel((0, 0)) == overlay(image, np.ones((2, 2), np.float32), scale).getpixel((0, 0))


def test_the_colour_bar_has_the_colours_of_the_pictures():
    image = Image.new("RGB", (4, 4), (128, 128, 128))
    ends = [overlay(image, np.full((2, 2), value, np.float32), Scale(0.0, 1.0)).getpixel((0, 0)) for value in (0, 1)]
    stops = gradient().removesuffix(")").split("rgb(")[1:]
    for end, stop in zip(ends, (stops[0], stops[-1]), strict=True):
        numbers = [int(number) for number in stop.partition(")")[0].split()]
        assert max(abs(a - b) for a, b in zip(end, numbers, strict=True)) <= 2
