"""Items as the search reads them: what is scored, and beside it what makes a scan quick and its bound
rigorous.

What a search refuses, before anything is indexed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from learners.block import DenseBlock, Float32s, Int64s, SparseBlock, as_block, numbers, row_numbers
from learners.errors import BlockError, require_whole
from learners.kernels.intrinsics import LANES, STRIDE
from learners.kernels.scan import encode, pad_long, pad_short

SHORT_DIM = 1 << 16
"""Dimensions whose columns fit 16 bits, which are half the bytes to read."""

UNIT = 2.0**-24
"""Unit roundoff of float32."""

NORMAL = 2.0**-120
"""A bound for underflow that is itself a normal number: sums with others take a hundred times as long."""

FEW = 16
"""Roundings granted beyond those of a row's own products and sums: those of the bound and of the score
itself."""

UP = 1 + 1e-6
"""Makes up for the rounding of a bound itself to float32, and of norms summed in float64."""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class SparseItems:
    """Sparse items, n rows of d columns, copied and padded for the scan; 6 or 8 bytes per entry.

    order: int64 [n], the rows by their number of entries; places: its inverse. What follows is in that order.
    pointers: int64 [n + 1]; columns: uint16 up to 65,536 columns, else uint32; values: float32; radius:
    float32 [n], how far a float32 product of a row with f may be from the true one, per ||f||: gamma ||row||,
    with gamma = c u / (1 - c u) for c roundings, which holds for any order of summation (Higham, Accuracy and
    Stability of Numerical Algorithms, 2nd ed., section 3.1). longest: norm of the longest row. lost: most
    that underflow may take from a product.
    """

    dim: int
    pointers: Int64s
    columns: NDArray[Any]
    values: Float32s
    radius: Float32s
    order: Int64s
    places: Int64s
    longest: float
    lost: float

    @classmethod
    def of(cls, block: SparseBlock) -> SparseItems:
        """Prepare a block. Raises BlockError naming a row with a value that is not finite, or an index out of
        range or not above the one before it."""
        block.check_indices()
        lengths = -(-np.diff(block.indptr) // LANES) * LANES
        order = np.argsort(lengths, kind="stable")
        lengths, places = lengths[order], np.empty_like(order)
        places[order] = np.arange(len(order))
        pointers = np.zeros(len(block) + 1, np.int64)
        np.cumsum(lengths, out=pointers[1:])
        short = block.dim <= SHORT_DIM
        columns = np.zeros(pointers[-1], np.uint16 if short else np.uint32)
        values, norms = np.zeros(pointers[-1], np.float32), np.zeros(len(block))
        fill = pad_short if short else pad_long
        wrong = fill(block.dim, block.kernel_rows(), pointers, order, columns, values, norms)
        _refuse(wrong, f"a value that is not finite or an index outside 0..{block.dim - 1}")
        errors = (lengths + FEW) * UNIT
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            gamma = np.where(errors < 1, errors / np.maximum(1 - errors, 0), np.inf)
            radius = (gamma * norms * UP).astype(np.float32)
        lost = max(float(lengths.max(initial=0) + FEW) * 2.0**-148, NORMAL)
        longest = float(norms.max(initial=0))
        return cls(block.dim, pointers, columns, values, radius, order, places, longest, lost)

    def __len__(self) -> int:
        return len(self.radius)

    def arrays(self) -> tuple[Int64s, NDArray[Any], Float32s, Float32s, Int64s]:
        """As the kernels take them."""
        return self.pointers, self.columns, self.values, self.radius, self.order


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class DenseItems:
    """Dense items, n rows of d columns, referred to, and their 8-bit codes: a byte per number beside its
    four.

    values: float32 [n, d]; codes: int8 [n, p], d padded with zeros; bounds: float64 [n, 3]: the step of
    each row's codes, its norm, and the norm of what its codes leave out.
    """

    values: Float32s
    codes: NDArray[np.int8]
    bounds: NDArray[np.float64]

    @classmethod
    def of(cls, block: DenseBlock) -> DenseItems:
        """Prepare a block. Raises BlockError naming the first row with a value that is not finite."""
        codes = np.empty((len(block), -(-block.dim // STRIDE) * STRIDE), np.int8)
        bounds = np.empty((len(block), 3))
        _refuse(encode(block.values, codes, bounds), "a value that is not finite")
        return cls(block.values, codes, bounds)

    @property
    def dim(self) -> int:
        """Columns."""
        return int(self.values.shape[1])

    def __len__(self) -> int:
        return len(self.values)

    def arrays(self) -> tuple[Float32s, NDArray[np.int8], NDArray[np.float64]]:
        """As the kernels take them."""
        return self.values, self.codes, self.bounds


SearchItems: TypeAlias = SparseItems | DenseItems


def as_items(rows: Any) -> SearchItems:
    """Rows made ready for the search: a block, or anything that `as_block` reads. Raises BlockError."""
    block = as_block(rows)
    return SparseItems.of(block) if isinstance(block, SparseBlock) else DenseItems.of(block)


def _refuse(row: int, what: str) -> None:
    if row >= 0:
        raise BlockError(f"row {row} of the items has {what}: leave it out")


Mask: TypeAlias = NDArray[np.bool_]

EVERY = np.zeros(0, np.int64)
ALL = np.zeros(0, np.bool_)
NONE_GIVEN = np.zeros(0, np.float32)


def checked_queries(folded: Any, dim: int) -> Float32s:
    """`folded` as C-contiguous float32 [m, dim]. Raises BlockError for another shape, or numbers not
    finite."""
    queries = numbers("folded queries", folded)
    if queries.ndim != 2 or queries.shape[1] != dim or queries.dtype != np.float32:
        raise BlockError(
            f"folded queries are {queries.dtype} {list(queries.shape)}: give float32 [queries, {dim}]"
        )
    if not np.isfinite(queries).all():
        row = int(np.flatnonzero(~np.isfinite(queries).all(axis=1))[0])
        raise BlockError(f"folded query {row} has a number that is not finite: look at its vector and at W")
    return np.require(queries, np.float32, ["C", "A"])


def checked_scale(scale: Float32s | None, rows: int) -> Float32s:
    """The scale of each row as kernels take it: empty for 1. Raises BlockError."""
    if scale is None:
        return NONE_GIVEN
    scale = numbers("scale", scale)
    if scale.shape != (rows,) or scale.dtype != np.float32:
        raise BlockError(f"scale is {scale.dtype} {list(scale.shape)}: give float32 [{rows}]")
    if rows and not (scale.min() >= 0 and scale.max() < np.inf):
        raise BlockError("scale has a number that is negative or not finite: give 1 / norm, 0 where none is")
    return np.require(scale, np.float32, ["C", "A"])


def checked_offset(offset: Float32s | None, rows: int) -> Float32s:
    """The offset of each row as kernels take it: empty for 0. Raises BlockError."""
    if offset is None:
        return NONE_GIVEN
    offset = numbers("offset", offset)
    if offset.shape != (rows,) or offset.dtype != np.float32:
        raise BlockError(f"offset is {offset.dtype} {list(offset.shape)}: give float32 [{rows}]")
    if not np.isfinite(offset).all():
        raise BlockError("offset has a number that is not finite: look at the items and at W")
    return np.require(offset, np.float32, ["C", "A"])


def checked_mask(allowed: Mask | None, rows: int) -> Mask:
    """The mask as kernels take it: empty for all. Raises BlockError."""
    if allowed is None:
        return ALL
    allowed = numbers("allowed", allowed)
    if allowed.shape != (rows,) or allowed.dtype != np.bool_:
        raise BlockError(f"allowed is {allowed.dtype} {list(allowed.shape)}: give bool [{rows}]")
    return np.require(allowed, np.bool_, ["C", "A"])


def checked_rows(rows: Any, count: int) -> Int64s:
    """Row numbers as kernels take them, int64. Raises BlockError for what is none, or outside the items."""
    return row_numbers(rows, count, "items")


def checked_count(k: Any) -> int:
    """How many are asked for, as an int. Raises BlockError."""
    require_whole("k", k, BlockError)
    if k < 0:
        raise BlockError(f"k must not be negative: {k}")
    return int(k)
