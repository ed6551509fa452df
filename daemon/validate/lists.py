"""Shown lists as padded arrays, and the seeded draws of random objects they are compared with."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from daemon.validate.measures import Float, Mask, Rows, propensity_weights
from streams.event import Impression

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True)
class ShownLists:
    """n shown lists padded to the longest, L: `valid`, `clicked` bool[n, L], `weights` float64[n, L]
    (1/propensity, clipped; 1 where none was logged).
    """

    valid: Mask
    clicked: Mask
    weights: Float

    @property
    def shown_order(self) -> Rows:
        """Ranks of the order the user saw, int64[n, L]."""
        count, length = self.valid.shape
        return np.tile(np.arange(1, length + 1, dtype=np.int64), (count, 1))

    def slice(self, part: slice) -> ShownLists:
        """Some of the lists, not copied."""
        return ShownLists(self.valid[part], self.clicked[part], self.weights[part])


def shown_lists(impressions: Sequence[Impression]) -> ShownLists:
    """Pad impressions to arrays."""
    length = max((len(impression.shown) for impression in impressions), default=1)
    shape = (len(impressions), length)
    lengths = np.array([len(impression.shown) for impression in impressions], np.int64)
    valid = np.arange(length) < lengths[:, None]
    clicked, weights = np.zeros(shape, bool), np.ones(shape)
    for row, impression in enumerate(impressions):
        clicked[row, list(impression.clicked)] = True
        if impression.propensity is not None:
            weights[row, : lengths[row]] = propensity_weights(np.asarray(impression.propensity, np.float64))
    return ShownLists(valid, clicked, weights)


def draws(impression_ids: Sequence[str], count: int, among: int) -> NDArray[np.int64]:
    """For each impression `count` numbers in [0, among), int64[n, count]: uniform up to 2^-32, the same for
    this impression on every machine and run.

    A counter through the splitmix64 finaliser (Steele, Lea, Flood, OOPSLA 2014), started at a hash of the
    id.
    """
    seeds = np.array([int.from_bytes(stable_order(one), "little") for one in impression_ids], np.uint64)
    with np.errstate(over="ignore"):
        state = seeds[:, None] + _GOLDEN * np.arange(1, count + 1, dtype=np.uint64)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state = state ^ (state >> np.uint64(31))
    numbers: NDArray[np.int64] = (state % np.uint64(among)).astype(np.int64)
    return numbers


def stable_order(key: str) -> bytes:
    """Sort key that picks a fixed, unbiased subset of ids however the window moves."""
    return hashlib.blake2b(key.encode(), digest_size=8).digest()
