"""How images are split over processes."""

import torch
from torch import Tensor

from scfs.distributed import gather_rows, gathered_blocks, is_rank_zero, per_process, rank, world_size
from scfs.errors import UserError

BLOCK = 8192  # rows of each process that are exchanged at a time


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


def in_order(indices: Tensor, *columns: Tensor, rows: int = BLOCK, everywhere: bool = False) -> tuple[Tensor, ...]:
    """The rows of all processes in the order of the source: indices (N,) of images, and columns (N, ...) for them.

    They are on the CPU of rank zero or, with `everywhere`, of each process; the other processes get no rows. Each
    tensor is allocated once, since it may fill half of the memory.
    """
    if world_size() == 1:
        order = slice(None) if (indices.diff() > 0).all() else indices.argsort()
        return tuple(column[order].cpu() for column in (indices, *columns))
    ordered = gather_rows(indices).cpu().sort().values
    kept = len(ordered) if everywhere or is_rank_zero() else 0
    found = [torch.empty(kept, *column.shape[1:], dtype=column.dtype) for column in columns]
    for at, *block in gathered_blocks(indices, *columns, rows=rows):
        if kept:
            places = torch.searchsorted(ordered, at.cpu())
            for column, part in zip(found, block, strict=True):
                column[places] = part.cpu()
    return ordered[:kept], *found


def _refuse_fewer_than_processes(num_images: int) -> None:
    if num_images < world_size():
        raise UserError(f"{num_images} images cannot be split over {world_size()} processes; start fewer.")
