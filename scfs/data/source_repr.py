from collections.abc import Sized

from scfs.data.counted import counted


class SourceRepr(Sized):
    """Shows a source by its number of images and classes: `FileSource(300 images, 10 classes)`."""

    classes: tuple[str, ...]

    def __repr__(self) -> str:
        classes = counted(len(self.classes), "class", "classes") if self.classes else "without labels"
        return f"{type(self).__name__}({counted(len(self), 'image')}, {classes})"
