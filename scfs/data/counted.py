def counted(number: int, noun: str, plural: str = "") -> str:
    """A number of things in words: 1 image, 2 images."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"
