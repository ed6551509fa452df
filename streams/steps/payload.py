"""The numbers of `Steps` as one run of little-endian bytes, and back, every length checked first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from streams.steps.errors import BAD_VECTORS, OUT_OF_RANGE, BadSegment
from streams.steps.segment import Steps
from streams.vectors import Column, DenseColumn, SparseColumn

CSR, DENSE = "csr", "dense"


@dataclass(frozen=True, slots=True)
class Layout:
    """What a payload holds: `events` timestamps, `steps` step sizes, and two blocks of rows of `form` with
    `dim` columns, of which the CSR ones have `query` and `error` stored entries."""

    events: int
    steps: int
    form: str
    dim: int
    query: int = 0
    error: int = 0

    @property
    def size(self) -> int:
        """Bytes of the payload."""
        if self.form == DENSE:
            return 8 * self.events + 4 * self.steps * (1 + 2 * self.dim)
        return 8 * self.events + 4 * self.steps * 3 + 8 * (self.query + self.error)


def layout_of(steps: Steps) -> Layout:
    """The layout of the payload of `steps`."""
    counts = len(steps.timestamps), len(steps.tau)
    if isinstance(steps.query, DenseColumn) or isinstance(steps.error, DenseColumn):
        return Layout(*counts, DENSE, steps.query.dim)
    stored = (int(block.indptr[-1] - block.indptr[0]) for block in (steps.query, steps.error))
    return Layout(*counts, CSR, steps.query.dim, *stored)


def pack(steps: Steps) -> bytes:
    """timestamps int64, tau float32, then query and error: dense rows, or lengths int32, indices int32,
    values float32."""
    arrays: list[tuple[npt.NDArray[Any], str]] = [(steps.timestamps, "<i8"), (steps.tau, "<f4")]
    for block in (steps.query, steps.error):
        if isinstance(block, DenseColumn):
            arrays.append((block.values, "<f4"))
        else:
            part = slice(int(block.indptr[0]), int(block.indptr[-1]))
            arrays += [
                (np.diff(block.indptr), "<i4"),
                (block.indices[part], "<i4"),
                (block.values[part], "<f4"),
            ]
    return b"".join([np.ascontiguousarray(array, dtype).data for array, dtype in arrays if array.size])


def unpack(layout: Layout, payload: bytes) -> tuple[npt.NDArray[Any], npt.NDArray[Any], Column, Column]:
    """(timestamps, tau, query, error), views of `payload`. Raises BadSegment unless all can be applied: step
    sizes above 0, everything finite, indices strictly increasing within 0..dim - 1."""
    if len(payload) != layout.size:
        raise BadSegment(
            OUT_OF_RANGE, f"a payload of {len(payload)} bytes where the header says {layout.size}"
        )
    cursor = _Cursor(payload)
    timestamps, tau = cursor.take(layout.events, "<i8"), cursor.take(layout.steps, "<f4")
    if not (np.isfinite(tau).all() and (tau > 0).all()):
        raise BadSegment(BAD_VECTORS, "a step size is not a finite number above 0")
    if len(timestamps) and not (timestamps.min() >= 0 and timestamps.max() < 2**53):
        raise BadSegment(OUT_OF_RANGE, "an event time is not within 0 .. 2^53 - 1 milliseconds")
    query = _rows(cursor, layout, layout.query)
    return timestamps, tau, query, _rows(cursor, layout, layout.error)


class _Cursor:
    def __init__(self, payload: bytes) -> None:
        self._payload, self._at = payload, 0

    def take(self, count: int, dtype: str) -> npt.NDArray[Any]:
        taken = np.frombuffer(self._payload, dtype, count, self._at)
        self._at += taken.nbytes
        return taken


def _rows(cursor: _Cursor, layout: Layout, stored: int) -> Column:
    if layout.form == DENSE:
        values = cursor.take(layout.steps * layout.dim, "<f4").reshape(layout.steps, layout.dim)
        _check_finite(values)
        return DenseColumn(values)
    lengths, indices = cursor.take(layout.steps, "<i4"), cursor.take(stored, "<i4")
    values = cursor.take(stored, "<f4")
    if (lengths < 0).any() or int(lengths.sum(dtype=np.int64)) != stored:
        raise BadSegment(BAD_VECTORS, "the lengths of the rows do not add up to the entries stored")
    indptr = np.zeros(layout.steps + 1, np.int64)
    np.cumsum(lengths, out=indptr[1:])
    if stored and (indices.min() < 0 or indices.max() >= layout.dim):
        raise BadSegment(BAD_VECTORS, f"an index is outside 0..{layout.dim - 1}")
    rises = np.diff(indices) > 0
    rises[indptr[1:-1][(indptr[1:-1] > 0) & (indptr[1:-1] < stored)] - 1] = True  # where a row begins
    if not rises.all():
        raise BadSegment(BAD_VECTORS, "indices do not increase strictly within a row")
    _check_finite(values)
    return SparseColumn(indptr, indices, values, layout.dim)


def _check_finite(values: npt.NDArray[Any]) -> None:
    if not np.isfinite(values).all():
        raise BadSegment(BAD_VECTORS, "a value is not finite")
