from PIL import Image

MAX_RATIO = 8  # of the sides of an image; beyond it, the ends of the longer side are cut off before resizing


def centred(image: Image.Image) -> Image.Image:
    """The middle of an image whose sides differ by more than a factor of `MAX_RATIO`; any other as it is.

    Enlarged by its shorter side, a line of pixels would take gigabytes, most of them outside the centre crop.
    """
    width, height = image.size
    longest = MAX_RATIO * min(width, height)
    if max(width, height) <= longest:
        return image
    width, height = min(width, longest), min(height, longest)
    left, top = (image.width - width) // 2, (image.height - height) // 2
    return image.crop((left, top, left + width, top + height))
