"""Whether all processes see the same images: each takes its shard of them by index."""

from scfs.data.locations import image_record
from scfs.data.sources import Source
from scfs.distributed import gather, world_size
from scfs.errors import UserError


def refuse_different_images(*sources: Source) -> None:
    """Check that all processes opened the same images, such as copies on each machine under the same path."""
    if world_size() == 1:
        return
    first, *others = gather([image_record(source) for source in sources])
    for rank, theirs in enumerate(others, start=1):
        for mine, other in zip(first, theirs, strict=True):
            if mine != other:
                counts = f"{mine['images']} and {other['images']}"
                how = "as many, with other names or classes" if mine["images"] == other["images"] else counts
                raise UserError(
                    f"Processes 0 and {rank} see different images ({how}); give all of them the same files, under the "
                    "same path."
                )
