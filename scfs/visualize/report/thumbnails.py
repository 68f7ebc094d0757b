"""Pictures inside the page: small, compressed, and part of the file."""

import base64
import io
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageOps

from scfs.visualize.report.markup import Html, tag

QUALITY = 82  # of JPEG
# Okabe and Ito's colours, which people with any kind of colour vision can tell apart.
BOX_COLOURS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")


def data_uri(image: Image.Image, *, lossless: bool = False) -> str:
    """An image as the address of itself: a JPEG, or a PNG for the few colours of a small map or a drawing."""
    buffer = io.BytesIO()
    if lossless:
        image.save(buffer, "PNG", optimize=True)
    else:
        image.convert("RGB").save(buffer, "JPEG", quality=QUALITY, optimize=True)
    kind = "png" if lossless else "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode()}"


def picture(image: Image.Image, about: str, *, lossless: bool = False, style: str | None = None) -> Html:
    """An `img` element; `about` is its description for those who do not see it."""
    uri = data_uri(image, lossless=lossless)
    return tag("img", src=uri, alt=about, width=image.width, height=image.height, style=style)


def square(image: Image.Image, side: int) -> Image.Image:
    """The centre of an image."""
    return ImageOps.fit(image.convert("RGB"), (side, side))


def fitted(image: Image.Image, side: int) -> Image.Image:
    """The whole image, its longer side so many pixels."""
    scale = side / max(image.size)
    return image.convert("RGB").resize((max(1, round(scale * image.width)), max(1, round(scale * image.height))))


def with_boxes(image: Image.Image, boxes: Sequence[Sequence[float]], side: int) -> Image.Image:
    """The whole image with boxes (left, top, right, bottom), in fractions of it, on a white line each."""
    drawn = fitted(image, side)
    draw = ImageDraw.Draw(drawn)
    for number, box in enumerate(boxes):
        x0, y0, x1, y1 = (round(edge * (extent - 1)) for edge, extent in zip(box, 2 * drawn.size, strict=True))
        for inset, colour in ((0, "white"), (1, box_colour(number)), (2, box_colour(number)), (3, "white")):
            if x1 - x0 > 2 * inset and y1 - y0 > 2 * inset:
                draw.rectangle((x0 + inset, y0 + inset, x1 - inset, y1 - inset), outline=colour)
    return drawn


def box_colour(number: int) -> str:
    """The colour of the box and the frame of a view or query."""
    return BOX_COLOURS[number % len(BOX_COLOURS)]


def framed(number: int) -> str:
    """The style of a picture that belongs to a box."""
    return f"outline:3px solid {box_colour(number)};outline-offset:-3px"


def colour_map(colours: NDArray[np.float32]) -> Image.Image:
    """A small map (H, W, 3) of colours from 0 to 1, a pixel per position: the browser enlarges it."""
    return Image.fromarray((255 * colours).round().astype(np.uint8))
