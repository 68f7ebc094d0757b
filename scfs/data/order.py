"""The order of an epoch's images, a function of (seed, epoch); of many images, without a list of them."""

import math
from collections.abc import Sequence
from typing import overload

import numpy as np
from numpy.typing import NDArray

# More images than this are not listed: their order is computed step by step. A list of 10 million takes a second and
# 80 MB in every process. Not lower, so that the order stays what it was for ImageNet and everything smaller.
MAX_LISTED = 2_000_000
ROUNDS = 8

Indices = NDArray[np.int64]


class EpochOrder(Sequence[int]):
    """Every index below `num_images` once, in random order."""

    def __init__(self, seed: int, epoch: int, num_images: int):
        random = np.random.default_rng(np.random.SeedSequence((seed, epoch)))
        self.num_images = num_images
        self.listed = random.permutation(num_images) if num_images <= MAX_LISTED else None
        self.keys = random.integers(2**64, size=ROUNDS, dtype=np.uint64) if self.listed is None else None

    def __len__(self) -> int:
        return self.num_images

    @overload
    def __getitem__(self, where: int) -> int: ...
    @overload
    def __getitem__(self, where: slice) -> list[int]: ...
    def __getitem__(self, where: int | slice) -> int | list[int]:
        positions = np.atleast_1d(np.asarray(range(self.num_images)[where], np.int64))
        indices: list[int] = self._at(positions).tolist()
        return indices if isinstance(where, slice) else indices[0]

    def _at(self, positions: Indices) -> Indices:
        if self.keys is None:
            assert self.listed is not None
            return self.listed[positions]
        return permuted(positions, self.num_images, self.keys)


def fixed_sample(seed: int, num_images: int, size: int) -> Indices:
    """Indices of some of the images, or of all if there are no more than `size`, ascending."""
    random = np.random.default_rng(seed)
    listed = num_images <= MAX_LISTED
    drawn = random.permutation(num_images)[:size] if listed else random.choice(num_images, size, replace=False)
    return np.sort(drawn)


def permuted(positions: Indices, count: int, keys: NDArray[np.uint64]) -> Indices:
    """Positions below `count` under a permutation of all of them that is a function of the keys.

    A Feistel network on pairs (position // width, position % width) with cycle walking (Black and Rogaway, 2002): every
    round adds a hash of one half to the other, which can be undone, so that no two positions meet. There are up to
    sqrt(count) more pairs than positions; who lands on one of these goes through the network again.
    """
    width = math.isqrt(count - 1) + 1
    height = -(-count // width)
    found = _network(positions.astype(np.uint64), height, width, keys)
    while (outside := np.flatnonzero(found >= count)).size:
        found[outside] = _network(found[outside], height, width, keys)
    return found.astype(np.int64)


def _network(positions: NDArray[np.uint64], height: int, width: int, keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    rows, columns = np.divmod(positions, np.uint64(width))
    for number, key in enumerate(keys):
        if number % 2:
            rows = (rows + _hash(columns, key)) % np.uint64(height)
        else:
            columns = (columns + _hash(rows, key)) % np.uint64(width)
    return rows * np.uint64(width) + columns


def _hash(values: NDArray[np.uint64], key: np.uint64) -> NDArray[np.uint64]:
    """The finalizer of SplitMix64, whose top half is returned, so that adding to it cannot overflow."""
    mixed = values ^ key
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed >> np.uint64(32)
