"""What the step log says: steps that were applied, versions they led to, and breaks in between.

Every segment has a `ChainPosition` and hangs on a chain of hashes through its writer epoch, so that a
reader can prove that it has missed nothing and that nothing was altered. Pure.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from streams.errors import StreamError
from streams.event import Column, Float32Array, Float64Array, Int64Array


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
class Steps:
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
    and `keys` bytes of 64 [n], the UTF-8 of each key; else both None. All else as in `Steps`.
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


Taken: TypeAlias = Steps | Triplets
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

Body: TypeAlias = Steps | Triplets | Base | Break


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
