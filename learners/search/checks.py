"""What a search refuses, before anything is indexed."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from learners.block import Float32s, Int64s
from learners.errors import BlockError

Mask: TypeAlias = NDArray[np.bool_]

EVERY = np.zeros(0, np.int64)
ALL = np.zeros(0, np.bool_)
NONE_GIVEN = np.zeros(0, np.float32)


def checked_queries(folded: Any, dim: int) -> Float32s:
    """`folded` as C-contiguous float32 [m, dim]. Raises BlockError for another shape, or numbers not
    finite."""
    queries = np.asarray(folded)
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
    if scale.shape != (rows,) or scale.dtype != np.float32:
        raise BlockError(f"scale is {scale.dtype} {list(scale.shape)}: give float32 [{rows}]")
    if rows and not (scale.min() >= 0 and scale.max() < np.inf):
        raise BlockError("scale has a number that is negative or not finite: give 1 / norm, 0 where none is")
    return np.require(scale, np.float32, ["C", "A"])


def checked_offset(offset: Float32s | None, rows: int) -> Float32s:
    """The offset of each row as kernels take it: empty for 0. Raises BlockError."""
    if offset is None:
        return NONE_GIVEN
    if offset.shape != (rows,) or offset.dtype != np.float32:
        raise BlockError(f"offset is {offset.dtype} {list(offset.shape)}: give float32 [{rows}]")
    if not np.isfinite(offset).all():
        raise BlockError("offset has a number that is not finite: look at the items and at W")
    return np.require(offset, np.float32, ["C", "A"])


def checked_mask(allowed: Mask | None, rows: int) -> Mask:
    """The mask as kernels take it: empty for all. Raises BlockError."""
    if allowed is None:
        return ALL
    if allowed.shape != (rows,) or allowed.dtype != np.bool_:
        raise BlockError(f"allowed is {allowed.dtype} {list(allowed.shape)}: give bool [{rows}]")
    return np.require(allowed, np.bool_, ["C", "A"])


def checked_rows(rows: Any, count: int) -> Int64s:
    """Row numbers as kernels take them, int64. Raises BlockError for one outside the items."""
    chosen = np.require(rows, np.int64, ["C", "A"])
    if len(chosen) and (chosen.min() < 0 or chosen.max() >= count):
        raise BlockError(f"rows {chosen.min()}..{chosen.max()} asked from {count} items")
    return chosen
