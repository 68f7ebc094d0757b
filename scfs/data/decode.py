from pathlib import Path

from PIL import Image, UnidentifiedImageError

from scfs.errors import UserError


def read_image(path: Path) -> Image.Image:
    """An image file as RGB. Pillow, because torchvision's decoder ends the process on a truncated PNG."""
    try:
        with Image.open(path) as image:
            return image.convert("RGB")
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError) as error:
        raise UserError(f"Cannot read image {path}: {error}; remove or repair it.") from None
