"""The numbers of steps and triplets as one run of little-endian bytes, and back, every length checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from streams.event import Column, DenseColumn, SparseColumn
from streams.limits import MAX_KEY_BYTES
from streams.poison import Poison
from streams.steps.segment import BAD_VECTORS, OUT_OF_RANGE, BadSegment, Steps, Taken, Triplets
from streams.wire import check_key

CSR, DENSE = "csr", "dense"
TAU, WEIGHT, NUMBER, KEY = "<f4", "<f8", "<i8", f"S{MAX_KEY_BYTES}"

Keyed: TypeAlias = tuple[npt.NDArray[np.int64], npt.NDArray[np.bytes_]]
"""Numbers and keys."""


@dataclass(frozen=True, slots=True)
class PayloadLayout:
    """What a payload holds: `events` timestamps, one number of `scalar` ("" for none) for each of `steps`
    rows, and blocks of that many rows of `form` with `dim` columns; `stored`: entries of each CSR block, 0 of
    each dense one. keyed: each row also has a number and a key."""

    events: int
    steps: int
    scalar: str
    form: str
    dim: int
    stored: tuple[int, ...]
    keyed: bool = False

    @property
    def size(self) -> int:
        """Bytes of the payload."""
        own = np.dtype(self.scalar).itemsize if self.scalar else 0
        own += np.dtype(NUMBER).itemsize + np.dtype(KEY).itemsize if self.keyed else 0
        rows = 4 * self.dim if self.form == DENSE else 4
        return 8 * self.events + self.steps * (own + rows * len(self.stored)) + 8 * sum(self.stored)


def layout_of(body: Taken) -> PayloadLayout:
    """The layout of the payload of steps or triplets."""
    scalar, _, blocks = _parts(body)
    counts = len(body.timestamps), len(body)
    keyed = _keyed(body) is not None
    if any(isinstance(block, DenseColumn) for block in blocks):
        return PayloadLayout(*counts, scalar, DENSE, blocks[0].dim, (0,) * len(blocks), keyed)
    stored = tuple(int(block.indptr[-1] - block.indptr[0]) for block in blocks)  # type: ignore[union-attr]
    return PayloadLayout(*counts, scalar, CSR, blocks[0].dim, stored, keyed)


def pack(body: Taken) -> bytes:
    """timestamps int64, tau float32 or weights float64, numbers int64 and keys of 64 bytes, then the blocks:
    dense rows, or lengths int32, indices int32, values float32."""
    scalar, numbers, blocks = _parts(body)
    arrays: list[tuple[npt.NDArray[Any], str]] = [(body.timestamps, "<i8")]
    if numbers is not None:
        arrays.append((numbers, scalar))
    if (keyed := _keyed(body)) is not None:
        arrays += zip(keyed, (NUMBER, KEY), strict=True)
    for block in blocks:
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


@dataclass(frozen=True, slots=True, eq=False)
class Unpacked:
    """The arrays of a payload, views of it. own: tau or weights; keyed: numbers and keys."""

    timestamps: npt.NDArray[Any]
    own: npt.NDArray[Any] | None
    keyed: Keyed | None
    blocks: tuple[Column, ...]


def unpack(layout: PayloadLayout, payload: bytes) -> Unpacked:
    """The arrays. Raises BadSegment unless all can be applied: step sizes above 0, weights not below it,
    numbers ascending, no key without a text, everything finite, indices strictly increasing within 0..dim -
    1."""
    if len(payload) != layout.size:
        raise BadSegment(
            OUT_OF_RANGE, f"a payload of {len(payload)} bytes where the header says {layout.size}"
        )
    cursor = _Cursor(payload)
    timestamps = cursor.take(layout.events, "<i8")
    numbers = cursor.take(layout.steps, layout.scalar) if layout.scalar else None
    if numbers is not None:
        _check_numbers(numbers, layout.scalar)
    if len(timestamps) and not (timestamps.min() >= 0 and timestamps.max() < 2**53):
        raise BadSegment(OUT_OF_RANGE, "an event time is not within 0 .. 2^53 - 1 milliseconds")
    keyed = _take_keyed(cursor, layout.steps) if layout.keyed else None
    blocks = tuple(_rows(cursor, layout, stored) for stored in layout.stored)
    return Unpacked(timestamps, numbers, keyed, blocks)


def _keyed(body: Taken) -> Keyed | None:
    if isinstance(body, Triplets) and body.numbers is not None and body.keys is not None:
        return body.numbers, body.keys
    return None


def _take_keyed(cursor: _Cursor, steps: int) -> Keyed:
    numbers, keys = cursor.take(steps, NUMBER), cursor.take(steps, KEY)
    if steps and (numbers[0] < 0 or numbers[-1] >= 2**53 or (numbers[1:] <= numbers[:-1]).any()):
        raise BadSegment(OUT_OF_RANGE, "the numbers of events do not ascend within 0 .. 2^53 - 1")
    for key in keys.tolist():
        try:
            check_key(key.decode())
        except (UnicodeDecodeError, Poison):
            raise BadSegment(OUT_OF_RANGE, "a key is no text of 1 to 64 bytes without U+0000") from None
    return numbers, keys


def _parts(body: Taken) -> tuple[str, npt.NDArray[Any] | None, tuple[Column, ...]]:
    """The type of the number that each row has, those numbers, and the blocks of rows."""
    if isinstance(body, Steps):
        return TAU, body.tau, (body.query, body.error)
    scalar = "" if body.weights is None else WEIGHT
    return scalar, body.weights, (body.query, body.clicked, body.skipped)


def _check_numbers(numbers: npt.NDArray[Any], scalar: str) -> None:
    if scalar == TAU and not (np.isfinite(numbers).all() and (numbers > 0).all()):
        raise BadSegment(BAD_VECTORS, "a step size is not a finite number above 0")
    if scalar == WEIGHT and not (np.isfinite(numbers).all() and (numbers >= 0).all()):
        raise BadSegment(BAD_VECTORS, "a weight is not a finite number of at least 0")


class _Cursor:
    def __init__(self, payload: bytes) -> None:
        self._payload, self._at = payload, 0

    def take(self, count: int, dtype: str) -> npt.NDArray[Any]:
        taken = np.frombuffer(self._payload, dtype, count, self._at)
        self._at += taken.nbytes
        return taken


def _rows(cursor: _Cursor, layout: PayloadLayout, stored: int) -> Column:
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
