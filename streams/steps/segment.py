"""What the step log says: steps that were applied, versions they led to, and breaks in between.

Every segment has a `ChainPosition` and hangs on a chain of hashes through its writer epoch, so that a
reader can prove that it has missed nothing and that nothing was altered.

Its numbers travel as one run of little-endian bytes, and every length is checked on the way back. Pure.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from streams.errors import StreamError
from streams.event import Column, DenseColumn, Float32Array, Float64Array, Int64Array, SparseColumn
from streams.limits import MAX_KEY_BYTES
from streams.poison import Poison
from streams.wire import check_key


@dataclass(frozen=True, slots=True)
class ChainPosition:
    """Where a segment belongs: writer epoch, number within it counted from 0, the version that the writer
    began from, and the writer's random token (32 hex digits), as its manifests have it: the writers of two
    checkpoint folders may both be at one epoch."""

    epoch: int
    seq: int
    run: int
    writer: str


@dataclass(frozen=True, slots=True, eq=False)
class RankOneSteps:
    """The steps of consecutive applied records.

    `first`, `last`: records applied since version 0, before and after (counter "records" of a manifest). Of
    records that fill several segments, all but the last segment have `last == first`. `watermark`: newest
    event time at `last`, ms. `timestamps` int64 [events]: event time in ms of every event that was not
    rejected, in order. `tau` float32 [n], `query`, `error` = clicked - skipped (n rows of the same kind and
    dim): the events that updated, in order. `cut`: a version was captured exactly at `last`. `project`: after
    the last step, W was projected onto the symmetric PSD matrices.
    """

    first: int
    last: int
    watermark: int | None
    timestamps: Int64Array
    tau: Float32Array
    query: Column
    error: Column
    cut: bool = False
    project: bool = False

    def __len__(self) -> int:
        return len(self.tau)


@dataclass(frozen=True, slots=True, eq=False)
class Triplets:
    """The same of a learner whose steps have no shorter form: its triplets themselves.

    `query`, `clicked`, `skipped` (n rows of one kind and dim): the events that were not rejected and that
    matter to the learner, in order; `weights` float64 [n], each finite and not negative, None where all are
    1. Where one model is learned per key: `numbers` int64 [n], ascending, by which the learner counts events,
    and `keys` bytes of 64 [n], the UTF-8 of each key; else both None. All else as in `RankOneSteps`.
    """

    first: int
    last: int
    watermark: int | None
    timestamps: Int64Array
    weights: Float64Array | None
    query: Column
    clicked: Column
    skipped: Column
    cut: bool = False
    numbers: Int64Array | None = None
    keys: npt.NDArray[np.bytes_] | None = None

    def __len__(self) -> int:
        return len(self.query)

    @property
    def project(self) -> bool:
        """Nothing is projected on the way: what a learner does of itself it does again."""
        return False


Taken: TypeAlias = RankOneSteps | Triplets
"""What was learned, in either form."""


@dataclass(frozen=True, slots=True)
class Base:
    """A version is durable: its number, its records, the chain's value at its cut, the digest of the
    learner's arrays that steps change (hex; see FORMAT.md), and the token of the writer that wrote it.
    Segment 0 of each epoch is the base that the writer began from, whose chain value is `GENESIS`."""

    number: int
    records: int
    chain: bytes
    digest: str
    writer: str


@dataclass(frozen=True, slots=True)
class Break:
    """Steps after `records` are left out, until the next cut or for good; `reason` in `BREAK_REASONS`."""

    records: int
    reason: str


RATE, SINK, QUEUE, ERROR = "rate", "sink", "queue", "error"
BREAK_REASONS = (RATE, SINK, QUEUE, ERROR)
"""rate: more bytes per second than allowed. sink: the log did not take them. queue: the writer fell behind.
error: the steps could not be written down."""

Body: TypeAlias = RankOneSteps | Triplets | Base | Break


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """One decoded segment; `before` and `after` are the chain's values (32 bytes each)."""

    place: ChainPosition
    body: Body
    before: bytes
    after: bytes


CHAIN_BYTES = 32
GENESIS = bytes(CHAIN_BYTES)
"""The value before segment 0 of every epoch."""


def link(before: bytes, head: bytes, payload: bytes | memoryview) -> bytes:
    """The value after a segment: sha256 of the value before it, its header's bytes and its payload's."""
    digest = hashlib.sha256(before)
    digest.update(head)
    digest.update(payload)
    return digest.digest()


NULL_VALUE = "null_value"
MALFORMED = "malformed"
UNSUPPORTED_VERSION = "unsupported_version"
TOO_LARGE = "too_large"
OUT_OF_RANGE = "out_of_range"
BAD_VECTORS = "bad_vectors"
BAD_PARTS = "bad_parts"
BAD_HASH = "bad_hash"

REASONS: dict[str, str] = {
    NULL_VALUE: "the record has no value",
    MALFORMED: "the bytes are not one msgpack map with the fields of a segment, and no others",
    UNSUPPORTED_VERSION: "the format version is not one this release reads",
    TOO_LARGE: "a segment, its header or its number of parts is over the limit",
    OUT_OF_RANGE: "a number, text or hash is outside its range or length",
    BAD_VECTORS: "rows, indices or values are not those of a step",
    BAD_PARTS: "a part is missing, comes twice, or belongs to another segment",
    BAD_HASH: "the segment's bytes do not give the chain value that it states",
}


class BadSegment(StreamError):
    """A record that is not a usable part of a segment; `reason` is a key of `REASONS`."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"a bad record in the step log ({reason}): {detail}")
        self.reason, self.detail = reason, detail


CSR, DENSE = "csr", "dense"
TAU, WEIGHT, NUMBER, KEY = "<f4", "<f8", "<i8", f"S{MAX_KEY_BYTES}"

KeyColumns: TypeAlias = tuple[npt.NDArray[np.int64], npt.NDArray[np.bytes_]]
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
            arrays += [(np.diff(block.indptr), "<i4"), (block.indices[part], "<i4")]
            arrays.append((block.values[part], "<f4"))
    return b"".join([np.ascontiguousarray(array, dtype).data for array, dtype in arrays if array.size])


@dataclass(frozen=True, slots=True, eq=False)
class Unpacked:
    """The arrays of a payload, views of it. own: tau or weights; keyed: numbers and keys."""

    timestamps: npt.NDArray[Any]
    own: npt.NDArray[Any] | None
    keyed: KeyColumns | None
    blocks: tuple[Column, ...]


def unpack(layout: PayloadLayout, payload: bytes) -> Unpacked:
    """Unpack the arrays. Raises BadSegment unless all can be applied: step sizes above 0, weights not below
    it, numbers ascending, no key without a text, everything finite, indices strictly increasing within
    0..dim - 1."""
    if len(payload) != layout.size:
        problem = f"a payload of {len(payload)} bytes where the header says {layout.size}"
        raise BadSegment(OUT_OF_RANGE, problem)
    cursor = _Cursor(payload)
    timestamps = cursor.take(layout.events, "<i8")
    numbers = cursor.take(layout.steps, layout.scalar) if layout.scalar else None
    if numbers is not None:
        if layout.scalar == TAU and not (np.isfinite(numbers).all() and (numbers > 0).all()):
            raise BadSegment(BAD_VECTORS, "a step size is not a finite number above 0")
        if layout.scalar == WEIGHT and not (np.isfinite(numbers).all() and (numbers >= 0).all()):
            raise BadSegment(BAD_VECTORS, "a weight is not a finite number of at least 0")
    if len(timestamps) and not (timestamps.min() >= 0 and timestamps.max() < 2**53):
        raise BadSegment(OUT_OF_RANGE, "an event time is not within 0 .. 2^53 - 1 milliseconds")
    keyed = _take_keyed(cursor, layout.steps) if layout.keyed else None
    blocks = tuple(_rows(cursor, layout, stored) for stored in layout.stored)
    return Unpacked(timestamps, numbers, keyed, blocks)


def _keyed(body: Taken) -> KeyColumns | None:
    if isinstance(body, Triplets) and body.numbers is not None and body.keys is not None:
        return body.numbers, body.keys
    return None


def _take_keyed(cursor: _Cursor, steps: int) -> KeyColumns:
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
    if isinstance(body, RankOneSteps):
        return TAU, body.tau, (body.query, body.error)
    scalar = "" if body.weights is None else WEIGHT
    return scalar, body.weights, (body.query, body.clicked, body.skipped)


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
