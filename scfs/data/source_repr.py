from collections.abc import Sized


class SourceRepr(Sized):
    """Shows a source by its number of images and classes: `FileSource(300 images, 10 classes)`."""

    classes: tuple[str, ...]

    def __repr__(self) -> str:
        classes = f"{len(self.classes)} classes" if self.classes else "without labels"
        return f"{type(self).__name__}({len(self)} images, {classes})"
