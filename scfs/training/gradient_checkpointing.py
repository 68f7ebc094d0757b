from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint

SEQUENCES = (nn.Sequential, nn.ModuleList)
MIN_LEAVES = 4  # a block is more than a layer with its norm and activation


def checkpoint_blocks(net: nn.Module) -> int:
    """Gradient checkpointing: store only the inputs of each block, and recompute its activations in the backward pass.

    Not timm's own switch, which its intermediate features bypass and under which batch norms count every batch twice.
    Returns the number of blocks.
    """
    blocks = list(_blocks(net))
    for block in blocks:
        block.forward = _recomputed(block, block.forward)
    return len(blocks)


def _blocks(net: nn.Module) -> Iterator[nn.Module]:
    """The innermost composite members of sequences: residual blocks of ResNets, transformers, ConvNeXts."""
    for parent in net.modules():
        if isinstance(parent, SEQUENCES):
            for child in parent:
                inner = (m for m in child.modules() if isinstance(m, SEQUENCES))
                if _is_composite(child) and not any(_is_composite(member) for m in inner for member in m):
                    yield child


def _is_composite(module: nn.Module) -> bool:
    return sum(not list(leaf.children()) for leaf in module.modules()) >= MIN_LEAVES


def _recomputed(block: nn.Module, forward: Callable[..., Any]) -> Callable[..., Any]:
    def contexts() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        return nullcontext(), _frozen_statistics(block)

    def checkpointed_forward(*inputs: Any, **options: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(*inputs, **options)
        return checkpoint(forward, *inputs, use_reentrant=False, context_fn=contexts, **options)

    return checkpointed_forward


@contextmanager
def _frozen_statistics(block: nn.Module) -> Iterator[None]:
    """Within it, batch norms normalise as before but do not update their running statistics again."""
    norms = [m for m in block.modules() if isinstance(m, _BatchNorm) and m.num_batches_tracked is not None]
    before = [(norm.momentum, cast(Tensor, norm.num_batches_tracked).clone()) for norm in norms]
    for norm in norms:
        norm.momentum = 0.0  # leaves the running statistics unchanged
    try:
        yield
    finally:
        for norm, (momentum, count) in zip(norms, before, strict=True):
            norm.momentum = momentum
            cast(Tensor, norm.num_batches_tracked).copy_(count)
