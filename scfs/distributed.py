"""The only file that knows of process groups: everywhere else, one process and many run the same code."""

import inspect
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from scfs.cores import allowed_cores, core_quota
from scfs.errors import UserError, fixable

TIMEOUT, DEFAULT_TIMEOUT = "SCFS_TIMEOUT", 600.0  # environment variable; seconds
NO_TIMEOUT = timedelta(days=365)
# How gloo puts it that another process ended or does not answer.
LOST = re.compile(r"Timed out waiting|Connection (?:closed by|reset by) peer|Broken pipe|Socket Timeout", re.IGNORECASE)

T = TypeVar("T")


def rank() -> int:
    """The rank of this process, from 0."""
    return int(os.environ.get("RANK", "0"))


def world_size() -> int:
    """The number of processes that torchrun started; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def local_world_size() -> int:
    """The number of processes on this machine."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def num_cores() -> int:
    """The number of cores for this process: those it may use, divided by the processes on this machine."""
    return max(1, min(len(allowed_cores()), core_quota()) // local_world_size())


def own_cores() -> list[int]:
    """The cores that no other process of this run uses; none if a container may use only some at a time."""
    cores, count = allowed_cores(), num_cores()
    first = count * int(os.environ.get("LOCAL_RANK", "0"))
    return cores[first : first + count] if core_quota() >= len(cores) else []


def is_rank_zero() -> bool:
    """Whether this process is the one that writes files and prints."""
    return rank() == 0


def choose_device(name: str) -> torch.device:
    """The device of this process: as named, or a GPU if there is one; under torchrun each takes its own."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name.startswith("cuda:") and (processes := local_world_size()) > 1:
        raise UserError(f"Device '{name}' cannot be used by {processes} processes; use cuda, one GPU for each.")
    if name == "cuda" and world_size() > 1:
        name = f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
    try:
        device = torch.device(name)
        if device.type == "meta":
            raise RuntimeError("its tensors have no values")
        torch.empty(1, device=device)
    except (NotImplementedError, ImportError):  # torch lists every backend that it knows
        raise UserError(f"Device '{name}' cannot be used: this PyTorch does not support it; use cpu or auto.") from None
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"Device '{name}' cannot be used: {reason}; use cpu or auto.") from None
    if device.type == "cuda" and device.index is not None:
        torch.cuda.set_device(device)  # that of the thread that pins memory, and of what torch says of "the" GPU
    return device


@contextmanager
def process_group(device: torch.device) -> Iterator[None]:
    """Join the process group of torchrun's processes, and leave it at the end; does nothing in a single process.

    A process that has waited for the others for ten minutes, or for SCFS_TIMEOUT seconds, ends with an error.
    """
    if world_size() == 1 or dist.is_initialized():
        yield
        return
    timeout = _timeout()
    if device.type == "cuda":
        dist.init_process_group("nccl", device_id=device, timeout=timeout)
    else:
        dist.init_process_group("gloo", timeout=timeout)
    try:
        yield
    except BaseException as error:
        if device.type != "cuda":  # leaving a group of NCCL waits for the others, which wait for this process
            dist.destroy_process_group()
        if not isinstance(error, RuntimeError) or LOST.search(str(error)) is None:
            raise
        raise UserError(
            f"Another process has ended, or did not answer within {timeout.total_seconds():g} seconds "
            f"({TIMEOUT}); its own message says why. Start again to resume."
        ) from None
    else:
        dist.destroy_process_group()


def _timeout() -> timedelta:
    given = os.environ.get(TIMEOUT, str(DEFAULT_TIMEOUT))
    try:
        return timedelta(seconds=max(1.0, float(given)))
    except (ValueError, OverflowError):
        raise UserError(f"The environment variable {TIMEOUT} is '{given}'; give a number of seconds.") from None


@contextmanager
def waiting_for_all() -> Iterator[None]:
    """At its end, wait for the other processes however long their work takes; collectives would time out.

    Every process must enter it. It ends early if another process dies.
    """
    group = _group_without_timeout() if world_size() > 1 else None
    yield
    if group is not None:
        dist.barrier(group)


def _group_without_timeout() -> Any:
    """A group of all processes, which must create it together. It fails at once if one of them dies."""
    return dist.new_group(backend="gloo", timeout=NO_TIMEOUT)


def sum_over_processes(tensors: Iterable[Tensor]) -> None:
    """Sum tensors of one type over all processes, in place, with a single all-reduce."""
    tensors = list(tensors)
    if world_size() == 1 or not tensors:
        return
    flat = torch.cat([tensor.flatten() for tensor in tensors])
    dist.all_reduce(flat)
    for tensor, part in zip(tensors, flat.split([tensor.numel() for tensor in tensors]), strict=True):
        tensor.copy_(part.view_as(tensor))


def mean_over_processes(tensor: Tensor) -> Tensor:
    """The mean of a tensor over all processes."""
    if world_size() == 1:
        return tensor
    mean = tensor.detach().clone()
    dist.all_reduce(mean)
    return mean / world_size()


def sum_with_gradient(value: Tensor) -> Tensor:
    """The sum of a tensor over all processes, through which gradients flow back to each."""
    total: Tensor = _Sum.apply(value)
    return total


def gather_images(values: Tensor) -> tuple[Tensor, int]:
    """Concatenate the tensors (..., B, K) of all processes; returns them and the index of this process's first image.

    Gradients flow back to the process that each image came from.
    """
    if world_size() == 1:
        return values, 0
    gathered: Tensor = _Gather.apply(values.contiguous())
    return gathered, rank() * values.shape[-2]


def gather_rows(values: Tensor) -> Tensor:
    """The rows (N, ...) of all processes in the order of their ranks, in every process; N may differ."""
    return _all_gather(values, gather(len(values)))


def gathered_blocks(*columns: Tensor, rows: int) -> Iterator[tuple[Tensor, ...]]:
    """The rows of all processes, block by block: each block has up to `rows` rows of every process, rank by rank.

    columns: (N, ...), with an N that may differ between processes.
    """
    counts = gather(len(columns[0]))
    for first in range(0, max(counts), rows):
        sizes = [min(max(count - first, 0), rows) for count in counts]
        yield tuple(_all_gather(column[first : first + rows], sizes) for column in columns)


def _all_gather(values: Tensor, sizes: Sequence[int]) -> Tensor:
    """Concatenate the rows of all processes, `sizes` of each; sent padded, as a collective needs equal shapes."""
    if world_size() == 1:
        return values
    padded = torch.zeros(max(sizes), *values.shape[1:], dtype=values.dtype, device=_collective_device())
    padded[: len(values)] = values
    parts = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(parts, padded)
    return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])


def sum_counts(*numbers: float) -> list[int]:
    """Integers, each summed over all processes."""
    if world_size() == 1:
        return [int(number) for number in numbers]
    sums = torch.tensor(numbers, dtype=torch.int64, device=_collective_device())
    dist.all_reduce(sums)
    return [int(number) for number in sums.tolist()]


def _collective_device() -> str:
    """The CPU where the group has a backend for it; NCCL works on GPUs only."""
    return "cuda" if dist.get_backend() == "nccl" else "cpu"


def gather(value: T) -> list[T]:
    """The values of all processes in the order of their ranks, in every process."""
    if world_size() == 1:
        return [value]
    values: list[Any] = [None] * world_size()
    dist.all_gather_object(values, value)
    return values


def on_rank_zero(action: Callable[[], T], *, takes_long: bool = False) -> T:
    """Run an action in rank zero only; all processes get its result or, if it fails, an error.

    The others wait at most as long as for any collective, or without a limit if it `takes_long`.
    """
    if world_size() == 1:
        return action()
    group = _group_without_timeout() if takes_long else None
    box: list[Any] = [None, None]  # the result, and the error
    failure: Exception | None = None
    if is_rank_zero():
        try:
            box[0] = action()
        except Exception as error:  # whatever it is, the others must not wait for a result
            failure = _shared_error(error)
            known = isinstance(failure, UserError)
            box[1] = UserError(str(failure)) if known else RuntimeError(f"Rank zero failed: {error!r}.")
    dist.broadcast_object_list(box, src=0, group=group)
    if failure is not None:
        raise failure
    if box[1] is not None:
        raise box[1]
    return box[0]


def _shared_error(error: Exception) -> Exception:
    """The error that all processes raise for one of rank zero's: one sentence where the user can fix it."""
    sentence = fixable(error) if isinstance(error, OSError) else None
    return UserError(sentence) if sentence else error


def per_process(total: int, setting: str) -> int:
    """One process's part of a total that must be divisible by the world size."""
    count = world_size()
    if total % count:
        lower = total // count * count
        choices = f"{lower} or {lower + count}" if lower else str(count)
        raise UserError(f"{setting} {total} is not divisible by {count} processes; use {choices}.")
    return total // count


def parallel(module: nn.Module, device: torch.device) -> nn.Module:
    """The module, with gradients averaged over processes after each backward pass."""
    if world_size() == 1:
        return module
    known = inspect.signature(DistributedDataParallel.__init__).parameters
    # Buffers are synchronised elsewhere; the option was renamed in newer versions of torch.
    buffers = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
    devices = [device] if device.type == "cuda" else None
    options: dict[str, Any] = {buffers: False, "device_ids": devices, "gradient_as_bucket_view": True}
    return DistributedDataParallel(module, **options)


def no_sync(module: nn.Module) -> AbstractContextManager[None]:
    """Within it, backward passes of a `parallel` module do not average gradients over processes."""
    return module.no_sync() if isinstance(module, DistributedDataParallel) else nullcontext()


class _Sum(torch.autograd.Function):
    """A sum over processes whose gradient is the sum of the processes' gradients."""

    @staticmethod
    def forward(_: Any, value: Tensor) -> Tensor:
        total = value.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(_: Any, *grads: Tensor) -> Tensor:
        total = grads[0].clone()
        dist.all_reduce(total)
        return total


class _Gather(torch.autograd.Function):
    """Concatenates the tensors of all processes along the axis before the last; sums each one's gradients."""

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        ctx.images = value.shape[-2]
        parts = [torch.empty_like(value) for _ in range(world_size())]
        dist.all_gather(parts, value)
        return torch.cat(parts, dim=-2)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        total = grads[0].contiguous().clone()
        dist.all_reduce(total)
        return total.narrow(-2, rank() * ctx.images, ctx.images)
