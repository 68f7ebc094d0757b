"""How images are split over processes."""

from scfs.distributed import per_process, rank, world_size
from scfs.errors import UserError


def shard_of(num_images: int) -> range:
    """The indices of this process's images: with n processes, every n-th. Fewer images than processes are refused."""
    _refuse_fewer_than_processes(num_images)
    return range(rank(), num_images, world_size())


def usable_batch_size(setting: int, num_images: int) -> int:
    """The batch size as set, which must be divisible by the world size; with fewer images, the largest possible.

    Fewer images than processes are refused.
    """
    _refuse_fewer_than_processes(num_images)
    if setting > num_images:
        return num_images // world_size() * world_size()
    per_process(setting, "batch_size")
    return setting


def _refuse_fewer_than_processes(num_images: int) -> None:
    if num_images < world_size():
        raise UserError(f"{num_images} images cannot be split over {world_size()} processes; start fewer.")
