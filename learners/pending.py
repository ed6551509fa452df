"""Steps on dense rows that are learned, but not yet added to the matrix: part of a learner's state.

A step on dense rows changes all of W; added many at a time they cost one product of matrices instead of as
many passes over W (`learners.kernels.delayed`). What W is at any moment is the matrix with its pending steps,
and nothing is rounded otherwise by when they are added: only the last bits of later margins depend on it. So
the steps wait in the state, and are added when their room is full, or before what needs W as it is: a
projection, a pull towards the start, a step on sparse rows. All of these come with events, never with the end
of a batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from learners.block import Block, Float32s, times
from learners.errors import StateError, saved, saved_count, to_write
from learners.kernels.delayed import BILINEAR, DISTANCE
from learners.kernels.delayed_tiles import WIDE
from learners.kernels.dense_sweep import add_pending

MOST = 32
"""Steps that wait at most: at 64 they are hardly faster, and weigh twice as much."""

SHARE = 12
"""Dimensions for each step that may wait, so that they take at most a sixth of the memory of W."""

LARGEST_DIM = 4096
"""Above it, where dense rows are rare and W is far larger than any cache, no step waits."""

TAU, PAIRS, KIND = "pending_tau", "pending_pairs", "pending_kind"
"""Names of the arrays of a state, which those of earlier releases lack."""


def room_of(dim: int) -> int:
    """How many steps may wait: a multiple of 4."""
    return min(MOST, dim // (4 * SHARE) * 4) if dim <= LARGEST_DIM else 0


def width_of(dim: int) -> int:
    """Columns of a row of pairs: the dimension, filled up to whole panels."""
    return -(-dim // WIDE) * WIDE


def pending_bytes(dim: int) -> int:
    """What the room for pending steps of one matrix takes; where none wait, one step has room."""
    return 4 * max(1, room_of(dim)) * (1 + 2 * width_of(dim))


@dataclass(frozen=True, slots=True, eq=False)
class PendingSteps:
    """The steps that wait for one matrix, in order.

    tau: float32 [room], 0 from the first free place on. pairs: float32 [2 room, width_of(dim)]: of step n row
    2 n is the query (m of a distance), row 2 n + 1 the error c - s; 0 beyond dim and in free places.
    kind: what the matrix is, see `learners.kernels.delayed`. kept: whether they are part of the state; where
    they are not, there is room for one step, which never waits.
    """

    tau: Float32s
    pairs: Float32s
    kind: int
    kept: bool

    @classmethod
    def none(cls, dim: int, room: int, kind: int = BILINEAR) -> Self:
        """Room for so many steps."""
        places = max(1, room)
        pairs = np.zeros((2 * places, width_of(dim)), np.float32)
        return cls(np.zeros(places, np.float32), pairs, kind, room > 0)

    @classmethod
    def on(cls, tau: Float32s, pairs: Float32s, dim: int, kind: int = BILINEAR) -> Self:
        """Those that a state holds in these arrays, to be changed in place. Raises StateError."""
        waiting = np.count_nonzero(tau)
        if tau[waiting:].any() or pairs[2 * waiting :].any() or pairs[:, dim:].any():
            raise StateError(f"arrays {TAU} and {PAIRS} hold steps behind a free place: they were altered")
        if waiting == len(tau):  # a full room is emptied before it is saved; one step more has no place
            raise StateError(f"array {TAU} has no free place: it was altered")
        return cls(tau, pairs, kind, True)

    @classmethod
    def restored(cls, arrays: Mapping[str, NDArray[Any]], dim: int, room: int, kind: int, copy: bool) -> Self:
        """Those of a saved state; none of one that was saved before steps could wait. Raises StateError."""
        if not room or not {TAU, PAIRS, KIND} & set(arrays):
            return cls.none(dim, room, kind)
        if saved_count(arrays, KIND) != kind:
            raise StateError(f"array {KIND} must be {kind}: it belongs to another algorithm")
        tau = saved(arrays, TAU, np.float32, (room,))
        pairs = saved(arrays, PAIRS, np.float32, (2 * room, width_of(dim)))
        return cls.on(to_write(tau, TAU, copy), to_write(pairs, PAIRS, copy), dim, kind)

    def __len__(self) -> int:
        return int(np.count_nonzero(self.tau))

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """What belongs into a state; nothing where none ever wait."""
        kind = np.array(self.kind, np.int64)
        return {TAU: self.tau, PAIRS: self.pairs, KIND: kind} if self.kept else {}

    @property
    def for_kernels(self) -> tuple[Float32s, Float32s]:
        """The arrays as `learners.kernels.delayed` takes them."""
        return self.tau, self.pairs

    def with_them(self, base: Float32s) -> Float32s:
        """The matrix with all steps added: `base` itself where none wait, else a copy, float32 [dim, dim]."""
        if not len(self):
            return base
        whole = base.copy()
        self._add(whole)
        return whole

    def add_to(self, base: Float32s) -> None:
        """Add all steps to `base` in place; none wait any more."""
        if len(self):
            self._add(base)
            self.tau[...], self.pairs[...] = 0, 0

    def folded(self, block: Block) -> Float32s:
        """sym of their sum times each row, float32 [n, dim]: what they add to a fold by `base`. Raises
        BlockError on a bad index."""
        left, right = self._sides(block.dim)
        tau = self.tau[: len(left)] / 2
        folded = (times(block, left.T.copy()) * tau) @ right
        folded += (times(block, right.T.copy()) * tau) @ left
        return np.asarray(folded, np.float32)

    def product(self, block: Block) -> Float32s:
        """x^T times their sum for each row x, float32 [n, dim]: what they add to x^T W, W as it was learned.
        Raises BlockError on a bad index."""
        if self.kind != BILINEAR:
            return self.folded(block)
        left, right = self._sides(block.dim)
        along = times(block, left.T.copy()) * self.tau[: len(left)]
        return np.asarray(along @ right, np.float32)

    def self_products(self, block: Block) -> NDArray[np.float64]:
        """What they add to x^T W x of each row x, float64 [n]. Raises BlockError on a bad index."""
        left, right = self._sides(block.dim)
        products = times(block, left.T.copy()).astype(np.float64) * times(block, right.T.copy())
        return np.asarray(products @ self.tau[: len(left)].astype(np.float64))

    def _sides(self, dim: int) -> tuple[Float32s, Float32s]:
        last = 2 * len(self)
        return self.pairs[0:last:2, :dim], self.pairs[1:last:2, :dim]

    def _add(self, matrix: Float32s) -> None:
        add_pending(matrix, self.tau, self.pairs, len(self), self.kind != BILINEAR)


def matrix_in(arrays: Mapping[str, NDArray[Any]]) -> Float32s:
    """W of the saved state of a learner of one matrix with its pending steps, a copy; the array W itself
    where none wait. Raises StateError."""
    W: Float32s = arrays["W"]
    if TAU not in arrays:
        return W
    kind = min(saved_count(arrays, KIND), DISTANCE)
    return PendingSteps.restored(arrays, len(W), len(arrays[TAU]), kind, copy=True).with_them(W)
